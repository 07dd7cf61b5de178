// The inputs of the picture, for the graphics pipeline, which draws one at a time.

@group(0) @binding(0) var<uniform> globals: Globals;
