// What every picture is drawn with, whatever a slot holds.

// As in src/render/inputs.rs.
struct Globals {
    view_projection: mat4x4f,
    eye: vec4f,
    // Columns and rows of the array; of points, one row.
    grid: vec2u,
    // Tiles in a row of them.
    tiles: u32,
    // Numbers in an element of the array.
    components: u32,
    // Width and height in pixels.
    picture: vec2f,
    // Pixels that a length of 1 has at a distance of 1.
    pixels_per_length: f32,
    // Across a dot, in pixels.
    dot_size: f32,
    // The number at which the colour map begins, and what maps a range of 1 from there to the whole of it.
    limits: vec2f,
    // The type of the array's numbers: see `numbers`.
    number: u32,
    unused: u32,
    // Where an image lies: left, top, width and height in pixels of the picture.
    place: vec4f,
}

@group(0) @binding(0) var<uniform> globals: Globals;
@group(0) @binding(1) var palette: texture_2d<f32>;
@group(0) @binding(2) var palette_sampler: sampler;

// Where a number lies between the limits: 0 to 1 is what the colour map shows.
fn limited(number: f32) -> f32 {
    return (number - globals.limits.x) * globals.limits.y;
}

fn palette_colour(value: f32) -> vec3f {
    return textureSampleLevel(palette, palette_sampler, vec2f(value, 0.5), 0.0).rgb;
}
