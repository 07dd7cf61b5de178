// Draws every vertex of the field as a round dot that faces the eye, straight from the slot that the producer wrote.
//
// A dot is a square of two triangles: 6 vertices, without an index buffer.

struct Globals {
    view_projection: mat4x4f,
    eye: vec4f,
    // cols, rows, unused, unused
    grid: vec4u,
    // Width, height, pixels that a length of 1 has at a distance of 1, unused.
    picture: vec4f,
}

@group(0) @binding(0) var<uniform> globals: Globals;
@group(0) @binding(1) var palette: texture_2d<f32>;
@group(0) @binding(2) var palette_sampler: sampler;
@group(1) @binding(0) var<storage, read> vertices: array<vec4f>;

struct Dot {
    @builtin(position) clip: vec4f,
    // In pixels.
    @location(0) @interpolate(flat) centre: vec2f,
    @location(1) @interpolate(flat) radius: f32,
    @location(2) @interpolate(flat) value: f32,
}

// Of the distance between two vertices: neighbours do not touch.
const RADIUS: f32 = 0.3;
// In pixels. The smallest has the centre of a pixel in it wherever it lies; a larger one than the largest hides others.
const SMALLEST: f32 = 0.71;
const LARGEST: f32 = 6.0;

@vertex
fn vertex_main(@builtin(vertex_index) index: u32) -> Dot {
    let corner = array<vec2f, 6>(
        vec2f(-1.0, -1.0), vec2f(-1.0, 1.0), vec2f(1.0, -1.0),
        vec2f(1.0, -1.0), vec2f(-1.0, 1.0), vec2f(1.0, 1.0),
    )[index % 6];
    let vertex = vertices[index / 6];
    let clip = globals.view_projection * vec4f(vertex.xyz, 1.0);
    // The field is 2 wide.
    let spacing = 2.0 / f32(max(globals.grid.x, globals.grid.y) - 1);
    let wanted = RADIUS * spacing * globals.picture.z / max(clip.w, 1e-3);
    let radius = clamp(wanted, SMALLEST, LARGEST);

    var dot: Dot;
    // Half a pixel more each way, so that no pixel of it is missed.
    let reach = (radius + 0.5) * corner * 2.0 / globals.picture.xy;
    dot.clip = clip + vec4f(reach * clip.w, 0.0, 0.0);
    dot.centre = (clip.xy / clip.w * 0.5 + 0.5) * globals.picture.xy;
    dot.radius = radius;
    dot.value = vertex.w;
    return dot;
}

@fragment
fn fragment_main(dot: Dot) -> @location(0) vec4f {
    if distance(dot.clip.xy, dot.centre) > dot.radius {
        discard;
    }
    let colour = textureSampleLevel(palette, palette_sampler, vec2f(dot.value, 0.5), 0.0).rgb;
    return vec4f(colour, 1.0);
}
