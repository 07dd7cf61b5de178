// The curve of examples/first_frame.rs. Each instance draws it once more, a pixel lower and darker, so that it glows downwards.

struct Point {
    @builtin(position) clip: vec4f,
    @location(0) light: f32,
}

// As in the example: the picture's height in pixels, and how often the curve is drawn.
const HEIGHT: f32 = 360.0;
const INSTANCES: u32 = 64u;

@vertex
fn vertex_main(@location(0) at: vec2f, @builtin(instance_index) instance: u32) -> Point {
    // The last instance is the curve itself, and covers the others.
    let below = f32(INSTANCES - 1u - instance);
    // In Vulkan y points down, and the picture is 2 high.
    return Point(vec4f(at.x, 2.0 * below / HEIGHT - at.y, 0.0, 1.0), 1.0 - below / f32(INSTANCES));
}

@fragment
fn fragment_main(point: Point) -> @location(0) vec4f {
    let background = vec3f(0.05, 0.06, 0.10);
    let glow = mix(background, vec3f(0.10, 0.55, 0.85), point.light * point.light);
    return vec4f(select(glow, vec3f(1.0, 0.85, 0.45), point.light > 0.99), 1.0);
}
