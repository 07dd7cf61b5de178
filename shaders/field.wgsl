// Draws the field as a lit surface, straight from the slot that the producer wrote.
//
// There is no vertex input: the vertex shader reads the slot as a storage buffer, because it wants a vertex's
// neighbours too, for the normal. The field is drawn in tiles of TILE x TILE cells: one small index buffer serves every
// tile (an instance each), and therefore every grid.

struct Globals {
    view_projection: mat4x4f,
    eye: vec4f,
    // cols, rows, tiles across, unused
    grid: vec4u,
}

@group(0) @binding(0) var<uniform> globals: Globals;
@group(0) @binding(1) var palette: texture_2d<f32>;
@group(0) @binding(2) var palette_sampler: sampler;
@group(1) @binding(0) var<storage, read> vertices: array<vec4f>;

// Cells along a tile's edge; src/render/mesh.rs makes the indices.
const TILE: u32 = 32;

struct Point {
    @builtin(position) clip: vec4f,
    @location(0) position: vec3f,
    @location(1) normal: vec3f,
    @location(2) value: f32,
    // Where in the grid, 0 to 1 each way.
    @location(3) uv: vec2f,
}

fn vertex_at(col: u32, row: u32) -> vec4f {
    return vertices[row * globals.grid.x + col];
}

@vertex
fn vertex_main(@builtin(vertex_index) corner: u32, @builtin(instance_index) tile: u32) -> Point {
    let last = globals.grid.xy - vec2u(1);
    let origin = TILE * vec2u(tile % globals.grid.z, tile / globals.grid.z);
    // Beyond the last row or column the tile's corners fall together, and its triangles vanish.
    let at = min(origin + vec2u(corner % (TILE + 1), corner / (TILE + 1)), last);

    let here = vertex_at(at.x, at.y);
    let before = max(at, vec2u(1)) - vec2u(1);
    let after = min(at + vec2u(1), last);
    let across = vertex_at(after.x, at.y).xyz - vertex_at(before.x, at.y).xyz;
    let along = vertex_at(at.x, after.y).xyz - vertex_at(at.x, before.y).xyz;
    let up = cross(along, across);
    let size = length(up);

    var point: Point;
    point.position = here.xyz;
    point.clip = globals.view_projection * vec4f(here.xyz, 1.0);
    point.normal = select(vec3f(0.0, 1.0, 0.0), up / size, size > 0.0);
    point.value = here.w;
    point.uv = vec2f(at) / vec2f(last);
    return point;
}

// Fine lines along the grid let the eye follow the surface. 1 on a line, 0 between two; one pixel wide at any distance.
fn lines(uv: vec2f) -> f32 {
    let at = uv * 32.0;
    let width = fwidth(at);
    let distance = abs(fract(at - 0.5) - 0.5) / max(width, vec2f(1e-6));
    let line = 1.0 - smoothstep(0.4, 1.4, min(distance.x, distance.y));
    // Far away, where lines would touch, they fade out.
    return line * (1.0 - smoothstep(0.15, 0.45, max(width.x, width.y)));
}

const KEY_LIGHT: vec3f = vec3f(-0.46, 0.74, 0.49);
const KEY_COLOUR: vec3f = vec3f(1.00, 0.95, 0.87);
const SKY: vec3f = vec3f(0.62, 0.72, 0.92);
const GROUND: vec3f = vec3f(0.20, 0.16, 0.22);

@fragment
fn fragment_main(point: Point, @builtin(front_facing) front: bool) -> @location(0) vec4f {
    // Seen from below, the surface shows its other side.
    let facing = select(-1.0, 1.0, front);
    let normal = normalize(point.normal) * facing;
    let to_eye = normalize(globals.eye.xyz - point.position);
    let base = textureSampleLevel(palette, palette_sampler, vec2f(point.value, 0.5), 0.0).rgb;

    // Hemisphere light from sky and ground, and one key light.
    let ambient = mix(GROUND, SKY, 0.5 + 0.5 * normal.y) * 0.42;
    // Troughs see less of the sky: a cheap stand-in for ambient occlusion.
    let open = mix(0.62, 1.0, smoothstep(0.15, 0.75, point.value));
    let diffuse = max(dot(normal, KEY_LIGHT), 0.0) * KEY_COLOUR;
    let half_way = normalize(KEY_LIGHT + to_eye);
    let gloss = pow(max(dot(normal, half_way), 0.0), 48.0) * 0.30;
    // A faint rim where the surface turns away, so that crests stand out from each other.
    let rim = pow(1.0 - max(dot(normal, to_eye), 0.0), 4.0) * 0.22;

    let lit = base * (ambient * open + 0.95 * diffuse) + (gloss * KEY_COLOUR + rim * SKY) * open;
    return vec4f(lit * (1.0 - 0.16 * lines(point.uv)), 1.0);
}
