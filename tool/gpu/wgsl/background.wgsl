// A calm gradient behind the field: one triangle that covers the picture.
//!use globals
//!use one
//!use backdrop

struct Point {
    @builtin(position) clip: vec4f,
    // The position in the picture, -1 to 1 in both directions.
    @location(0) at: vec2f,
}

@vertex
fn vertex_main(@builtin(vertex_index) corner: u32) -> Point {
    let at = vec2f(f32(corner & 1u) * 4.0 - 1.0, f32(corner >> 1u) * 4.0 - 1.0);
    var point: Point;
    // Depth 0 is the farthest: the projection's depth is reversed.
    point.clip = vec4f(at, 0.0, 1.0);
    point.at = at;
    return point;
}

@fragment
fn fragment_main(point: Point) -> @location(0) vec4f {
    return vec4f(background(point.at, point.clip.xy - globals.corner), 1.0);
}
