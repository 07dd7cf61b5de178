// Draws the vertices as a lit surface, directly from the slot that CUDA wrote.
//
// There is no vertex input: both shaders read the slot as a storage buffer. The surface is drawn in tiles of TILE x TILE
// cells. Each tile is an instance of one small index buffer, which therefore suits every grid.

struct Constants {
    view_projection: mat4x4f,
    eye: vec4f,
    // Columns and rows of vertices.
    grid: vec2u,
    // Tiles in a row.
    tiles: u32,
}

// Vulkan's push constants.
var<immediate> constants: Constants;
// x, y and z are the position; w, 0 to 1, is the position in the colour map.
@group(0) @binding(0) var<storage, read> vertices: array<vec4f>;

// Cells along a tile's edge, as in src/draw.rs.
const TILE: u32 = 32;

fn vertex_at(at: vec2u) -> vec4f {
    return vertices[at.y * constants.grid.x + at.x];
}

// The vertex shader passes on only four numbers; a fifth costs a third more time on an H200. The fragment shader reads
// the rest from the slot, which costs next to nothing.
struct Point {
    @builtin(position) clip: vec4f,
    // The place in the grid, in cells, and the normal's `tilt`.
    @location(0) at_and_tilt: vec4f,
}

// A direction as two numbers: its stereographic projection from straight below.
fn tilt(direction: vec3f) -> vec2f {
    let below = length(direction) + direction.y;
    return select(vec2f(0.0), direction.xz / below, below > 0.0);
}

// The direction, of length 1, that has this tilt.
fn direction(tilt: vec2f) -> vec3f {
    let square = dot(tilt, tilt);
    return vec3f(2.0 * tilt.x, 1.0 - square, 2.0 * tilt.y) / (1.0 + square);
}

@vertex
fn vertex_main(@builtin(vertex_index) corner: u32, @builtin(instance_index) tile: u32) -> Point {
    let last = constants.grid - vec2u(1);
    let origin = TILE * vec2u(tile % constants.tiles, tile / constants.tiles);
    // Beyond the last row or column, the tile's corners coincide and its triangles vanish.
    let at = min(origin + vec2u(corner % (TILE + 1), corner / (TILE + 1)), last);

    // The normal, from the four neighbours.
    let before = max(at, vec2u(1)) - vec2u(1);
    let after = min(at + vec2u(1), last);
    let across = vertex_at(vec2u(after.x, at.y)).xyz - vertex_at(vec2u(before.x, at.y)).xyz;
    let along = vertex_at(vec2u(at.x, after.y)).xyz - vertex_at(vec2u(at.x, before.y)).xyz;

    let clip = constants.view_projection * vec4f(vertex_at(at).xyz, 1.0);
    return Point(clip, vec4f(vec2f(at), tilt(cross(along, across))));
}

// Viridis, in the bytes of a picture (sRGB). For another colour map, write other colours here.
const COLOURS = array(
    vec3f(68.0, 1.0, 84.0), vec3f(71.0, 45.0, 123.0), vec3f(59.0, 82.0, 139.0), vec3f(44.0, 114.0, 142.0),
    vec3f(33.0, 145.0, 140.0), vec3f(40.0, 174.0, 128.0), vec3f(94.0, 201.0, 98.0), vec3f(173.0, 220.0, 48.0),
    vec3f(253.0, 231.0, 37.0),
);

// The colour map's colour for 0 to 1, in linear light.
fn colour(value: f32) -> vec3f {
    var colours = COLOURS;
    let at = clamp(value, 0.0, 1.0) * 8.0;
    let below = min(u32(at), 7);
    let bytes = mix(colours[below], colours[below + 1], at - f32(below));
    return pow(bytes / 255.0, vec3f(2.2));
}

// Fine lines along the grid help the eye follow the surface. 1 on a line, 0 between the lines; one pixel wide at any
// distance. They fade out far away, where they would touch.
fn lines(uv: vec2f) -> f32 {
    let at = uv * 32.0;
    let width = fwidth(at);
    let distance = abs(fract(at - 0.5) - 0.5) / max(width, vec2f(1e-6));
    let line = 1.0 - smoothstep(0.4, 1.4, min(distance.x, distance.y));
    return line * (1.0 - smoothstep(0.15, 0.45, max(width.x, width.y)));
}

const KEY_LIGHT: vec3f = vec3f(-0.46, 0.74, 0.49);
const KEY_COLOUR: vec3f = vec3f(1.00, 0.95, 0.87);
const SKY: vec3f = vec3f(0.62, 0.72, 0.92);
const GROUND: vec3f = vec3f(0.20, 0.16, 0.22);

@fragment
fn fragment_main(point: Point, @builtin(front_facing) front: bool) -> @location(0) vec4f {
    // Between the four vertices of the cell. At a triangle's edge, the centre of a pixel can lie outside the grid.
    let at = point.at_and_tilt.xy;
    let last = constants.grid - vec2u(1);
    let cell = min(vec2u(max(at, vec2f(0.0))), last - vec2u(1));
    let part = at - vec2f(cell);
    let upper = mix(vertex_at(cell), vertex_at(cell + vec2u(1, 0)), part.x);
    let lower = mix(vertex_at(cell + vec2u(0, 1)), vertex_at(cell + vec2u(1, 1)), part.x);
    let here = mix(upper, lower, part.y);

    // Seen from below, the surface shows its other side.
    let normal = direction(point.at_and_tilt.zw) * select(-1.0, 1.0, front);
    let to_eye = normalize(constants.eye.xyz - here.xyz);

    // Light from the sky and the ground. Troughs see less of the sky.
    let open = mix(0.62, 1.0, smoothstep(0.15, 0.75, here.w));
    let ambient = mix(GROUND, SKY, 0.5 + 0.5 * normal.y) * 0.42 * open;
    // One lamp, with its reflection, and a faint rim where the surface turns away.
    let diffuse = 0.95 * max(dot(normal, KEY_LIGHT), 0.0) * KEY_COLOUR;
    let gloss = pow(max(dot(normal, normalize(KEY_LIGHT + to_eye)), 0.0), 48.0) * 0.30 * KEY_COLOUR;
    let rim = pow(1.0 - max(dot(normal, to_eye), 0.0), 4.0) * 0.22 * SKY;

    let lit = colour(here.w) * (ambient + diffuse) + (gloss + rim) * open;
    return vec4f(lit * (1.0 - 0.16 * lines(at / vec2f(last))), 1.0);
}
