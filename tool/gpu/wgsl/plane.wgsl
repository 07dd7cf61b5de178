// Draws a plane that reaches to the horizon. Its texture and its light come from the slot, an image with a mip
// chain. Near the eye a texel covers several pixels; at the horizon a pixel covers hundreds of texels. So one picture
// shows every level of the chain.

//!use globals
//!use one
//!use backdrop

@group(1) @binding(0) var surface: texture_2d<f32>;
@group(1) @binding(1) var surface_sampler: sampler;

// Half of the plane's width; anything beyond is lost in the haze.
const REACH: f32 = 80.0;
// The width of one tile of the texture.
const TILE: f32 = 2.0;
// The height of the waves for the lighting. The plane itself is flat.
const HEIGHT: f32 = 0.40;
// The factor of the slopes, as in handoff/src/contents/texture.rs.
const SLOPE: f32 = 0.06;

struct Point {
    @builtin(position) clip: vec4f,
    @location(0) position: vec3f,
    // x, y and w of the clip position, to look up the background.
    @location(1) screen: vec3f,
}

@vertex
fn vertex_main(@builtin(vertex_index) index: u32) -> Point {
    // Two triangles, counter-clockwise from above.
    let corner = array<vec2f, 6>(
        vec2f(-1.0, -1.0), vec2f(-1.0, 1.0), vec2f(1.0, -1.0),
        vec2f(1.0, -1.0), vec2f(-1.0, 1.0), vec2f(1.0, 1.0),
    )[index];
    var point: Point;
    point.position = vec3f(REACH * corner.x, 0.0, REACH * corner.y);
    point.clip = globals.view_projection * vec4f(point.position, 1.0);
    point.screen = point.clip.xyw;
    return point;
}

const KEY_LIGHT: vec3f = vec3f(-0.46, 0.74, 0.49);
const KEY_COLOUR: vec3f = vec3f(1.00, 0.95, 0.87);
const SKY: vec3f = vec3f(0.62, 0.72, 0.92);
const GROUND: vec3f = vec3f(0.20, 0.16, 0.22);

@fragment
fn fragment_main(point: Point, @builtin(front_facing) front: bool) -> @location(0) vec4f {
    let facing = select(-1.0, 1.0, front);
    // Trilinear: the level depends on how fast the coordinates change from pixel to pixel.
    let data = textureSample(surface, surface_sampler, point.position.xz / TILE);
    let slopes = data.yz * (HEIGHT * 0.5 / (SLOPE * TILE));
    let normal = normalize(vec3f(-slopes.x, 1.0, -slopes.y)) * facing;
    let to_eye = normalize(globals.eye.xyz - point.position);
    let base = palette_colour(data.x);

    // Hemisphere light from sky and ground, and one key light, as for the field.
    let ambient = mix(GROUND, SKY, 0.5 + 0.5 * normal.y) * 0.40;
    let open = mix(0.55, 1.0, smoothstep(0.15, 0.75, data.x));
    let diffuse = max(dot(normal, KEY_LIGHT), 0.0) * KEY_COLOUR;
    let half_way = normalize(KEY_LIGHT + to_eye);
    let gloss = pow(max(dot(normal, half_way), 0.0), 40.0) * 0.65;
    let rim = pow(1.0 - max(dot(normal, to_eye), 0.0), 5.0) * 0.16;

    // Contour lines are darker low down and lighter high up.
    let drawn = mix(base * 0.25, mix(base, vec3f(1.0), 0.55), smoothstep(0.35, 0.85, data.x));
    let surface_colour = mix(base, drawn, data.w * 0.8);
    let lit = surface_colour * (ambient * open + 0.95 * diffuse) + (gloss * KEY_COLOUR + rim * SKY) * open;

    // The plane fades into the background.
    let distance = length(point.position - globals.eye.xyz);
    let haze = exp(-pow(distance / 16.0, 2.0));
    return vec4f(mix(backdrop(point.screen.xy / point.screen.z), lit, haze), 1.0);
}
