// Draws an image onto the picture.
//!use globals
//!use one
//!use numbers
//!use backdrop
//!use image

// A depth in front of the background.
const DEPTH: f32 = 0.5;

@vertex
fn vertex_main(@builtin(vertex_index) index: u32) -> @builtin(position) vec4f {
    let corner = array<vec2f, 6>(
        vec2f(0.0, 0.0), vec2f(0.0, 1.0), vec2f(1.0, 0.0),
        vec2f(1.0, 0.0), vec2f(0.0, 1.0), vec2f(1.0, 1.0),
    )[index];
    let at = globals.place.xy + corner * globals.place.zw;
    return vec4f(2.0 * at / globals.picture - 1.0, DEPTH, 1.0);
}

@fragment
fn fragment_main(@builtin(position) position: vec4f) -> @location(0) vec4f {
    return vec4f(image_colour(position.xy - globals.corner), 1.0);
}

@fragment
fn facts_main(@builtin(position) position: vec4f) -> Facts {
    return image_facts(position.xy - globals.corner);
}
