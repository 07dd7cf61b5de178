// A calm gradient behind the surface: one triangle that covers the picture.

struct Point {
    @builtin(position) clip: vec4f,
    // -1 to 1 in both directions.
    @location(0) at: vec2f,
}

@vertex
fn vertex_main(@builtin(vertex_index) corner: u32) -> Point {
    let at = vec2f(f32(corner & 1u) * 4.0 - 1.0, f32(corner >> 1u) * 4.0 - 1.0);
    // Depth 0 is the farthest: the camera's depth is reversed.
    return Point(vec4f(at, 0.0, 1.0), at);
}

const DARK: vec3f = vec3f(0.0035, 0.0050, 0.0090);
const GLOW: vec3f = vec3f(0.018, 0.025, 0.043);

@fragment
fn fragment_main(point: Point) -> @location(0) vec4f {
    let scaled = point.at * vec2f(0.75, 1.0);
    let colour = mix(DARK, GLOW, exp(-1.6 * dot(scaled, scaled)));
    // Less than one step of 8 bits, so that the gradient shows no bands.
    let noise = fract(52.9829189 * fract(dot(point.clip.xy, vec2f(0.06711056, 0.00583715)))) - 0.5;
    return vec4f(colour * (1.0 + noise * 0.06), 1.0);
}
