// A full-screen triangle shows each height as a pixel: its colour, and in alpha the height itself.

override cols: u32;
@group(0) @binding(0) var<storage, read> heights: array<f32>;

@vertex
fn vertex(@builtin(vertex_index) index: u32) -> @builtin(position) vec4<f32> {
    return vec4(f32(index & 1u) * 4.0 - 1.0, f32(index >> 1u) * 4.0 - 1.0, 0.0, 1.0);
}

@fragment
fn fragment(@builtin(position) at: vec4<f32>) -> @location(0) vec4<f32> {
    let height = heights[u32(at.y) * cols + u32(at.x)];
    let warm = clamp(height * 0.5 + 0.5, 0.0, 1.0);
    return vec4(mix(vec3(0.05, 0.1, 0.4), vec3(1.0, 0.8, 0.3), warm), height);
}
