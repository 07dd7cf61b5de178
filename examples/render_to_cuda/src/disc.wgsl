// A red disc, one eighth of the height in radius. Its place depends on the frame, which is the number of the instance.

struct Disc {
    @builtin(position) at: vec4<f32>,
    @location(0) @interpolate(flat) frame: u32,
}

override cols: f32;
override rows: f32;

@vertex
fn corner(@builtin(vertex_index) index: u32, @builtin(instance_index) frame: u32) -> Disc {
    let whole = vec4(f32(index & 1u) * 4.0 - 1.0, f32(index >> 1u) * 4.0 - 1.0, 0.0, 1.0);
    return Disc(whole, frame);
}

@fragment
fn colour(disc: Disc) -> @location(0) vec4<f32> {
    let steps = vec2(f32(disc.frame * 37u % 101u), f32(disc.frame * 59u % 103u)) / vec2(101.0, 103.0);
    let centre = vec2(cols, rows) * (0.2 + 0.6 * steps);
    let inside = rows / 8.0 - distance(disc.at.xy, centre);
    return vec4(clamp(inside, 0.0, 1.0), 0.0, 0.2, 1.0);
}
