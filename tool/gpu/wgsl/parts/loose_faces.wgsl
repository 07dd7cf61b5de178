// Triangles between points, for `walk`. Needs `faces`. A workgroup has as many as another has in its cells.

fn begin_block(block: vec2u, thread: u32) {}

fn number_in(block: vec2u, index: u32) -> u32 {
    return 2 * THREADS * (block.y * raster.across + block.x) + index;
}

fn has_triangle(block: vec2u, index: u32) -> bool {
    return number_in(block, index) < globals.parts.w;
}

fn clips_at(block: vec2u, index: u32) -> array<vec4f, 3> {
    return clips_of(corners_of(number_in(block, index)));
}

// Returns triangle `index` of a block. Its area may be negative.
fn triangle_at(block: vec2u, index: u32) -> Triangle {
    let number = number_in(block, index);
    let hole = Corner(vec2i(0), 0.0, HOLE);
    if number >= globals.parts.w {
        return triangle_of(hole, hole, hole, number);
    }
    let corners = corners_of(number);
    if !is_face(corners) {
        return triangle_of(hole, hole, hole, number);
    }
    let clips = clips_of(corners);
    return triangle_of(corner_of(clips[0]), corner_of(clips[1]), corner_of(clips[2]), number);
}

fn colour_at(pixel: vec2u, number: u32, is_wireframe: bool) -> vec3f {
    return face_colour(number, vec2f(pixel) + 0.5);
}

fn facts_at(pixel: vec2u, number: u32) -> Facts {
    return face_facts(number, vec2f(pixel) + 0.5);
}
