// Draws the field of `kernels/wave.cu` as a lit surface, and the texture of `tool/handoff/kernels/texture.cu` on a quad.

struct View {
    clip_of_world: mat4x4<f32>,
    eye: vec3<f32>,
}

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var painted: texture_2d<f32>;
@group(0) @binding(2) var linear: sampler;

struct Point {
    @builtin(position) clip: vec4<f32>,
    @location(0) world: vec3<f32>,
    // The field: the position in the colour map, from 0 to 1. The quad: the texture coordinates.
    @location(1) value: vec2<f32>,
}

// From deep blue over teal to a warm white.
fn colour(value: f32) -> vec3<f32> {
    let stops = array(
        vec3(0.010, 0.022, 0.100), vec3(0.012, 0.105, 0.300), vec3(0.020, 0.330, 0.420),
        vec3(0.330, 0.640, 0.460), vec3(0.980, 0.860, 0.620),
    );
    let at = clamp(value, 0.0, 1.0) * 4.0;
    let below = min(u32(at), 3u);
    return mix(stops[below], stops[below + 1u], at - f32(below));
}

fn lit(albedo: vec3<f32>, normal: vec3<f32>, world: vec3<f32>) -> vec3<f32> {
    let light = normalize(vec3(-0.5, 0.9, 0.35));
    let half_way = normalize(light + normalize(view.eye - world));
    let shine = pow(max(dot(normal, half_way), 0.0), 60.0);
    return albedo * (0.25 + 1.0 * max(dot(normal, light), 0.0)) + 0.25 * shine;
}

@vertex
fn field_vertex(@location(0) vertex: vec4<f32>) -> Point {
    return Point(view.clip_of_world * vec4(vertex.xyz, 1.0), vertex.xyz, vec2(vertex.w, 0.0));
}

@fragment
fn field_fragment(point: Point) -> @location(0) vec4<f32> {
    // The slope of the triangle, because the vertices have no normals.
    var normal = normalize(cross(dpdx(point.world), dpdy(point.world)));
    normal = select(normal, -normal, normal.y < 0.0);
    return vec4(lit(colour(point.value.x), normal, point.world), 1.0);
}

@vertex
fn quad_vertex(@builtin(vertex_index) index: u32) -> Point {
    let corner = vec2(f32(index & 1u), f32(index >> 1u));
    let world = vec3(2.0 * corner.x - 1.0, 0.0, 2.0 * corner.y - 1.0);
    return Point(view.clip_of_world * vec4(world, 1.0), world, corner);
}

@fragment
fn quad_fragment(point: Point) -> @location(0) vec4<f32> {
    // The height, its slopes, and the share of a contour line at this point.
    let texel = textureSample(painted, linear, point.value);
    let normal = normalize(vec3(-texel.y, 0.35, -texel.z));
    let albedo = mix(colour(texel.x), vec3(0.9), 0.55 * texel.w);
    return vec4(lit(albedo, normal, point.world), 1.0);
}
