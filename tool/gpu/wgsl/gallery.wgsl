// The kernels of kernels/*.cu as Vulkan compute shaders, for machines without CUDA. Each has an entry point with its
// name, and one invocation per vertex. The kernel's file explains the formulas.

struct Parameters {
    cols: u32,
    rows: u32,
    // The position in the looped animation, 0 to 1. The CPU computes it in double precision.
    phase: f32,
    // The bits of a colour to keep and to set: all and none without stamps (handoff/src/contents/frame_stamp.rs).
    keep: u32,
    stamp: u32,
    // The values of the kernel's parameters, in order.
    values: vec4f,
}

var<immediate> parameters: Parameters;
@group(0) @binding(0) var<storage, read_write> vertices: array<vec4f>;

//!use sine

const HEIGHT: f32 = 0.30;
const WORKGROUP: u32 = 256;

// Returns the vertex of this invocation. The workgroups are in two dimensions, because one holds at most 65,535.
fn index_of(group: vec3u, groups: vec3u, local: u32) -> u32 {
    return (group.y * groups.x + group.x) * WORKGROUP + local;
}

// Returns a vertex's place in the domain, which is [-1, 1] x [-1, 1] for every grid.
fn place_of(i: u32) -> vec2f {
    let last = vec2f(vec2u(parameters.cols, parameters.rows) - vec2u(1));
    return 2.0 * vec2f(vec2u(i % parameters.cols, i / parameters.cols)) / last - vec2f(1.0);
}

// Writes a vertex, with a stamp if frames are stamped.
fn put(i: u32, position: vec3f, value: f32) {
    let colour = (bitcast<u32>(value) & parameters.keep) | parameters.stamp;
    vertices[i] = vec4f(position, bitcast<f32>(colour));
}

@compute @workgroup_size(WORKGROUP)
fn wave(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) local: u32) {
    let i = index_of(group, groups, local);
    if i >= parameters.cols * parameters.rows {
        return;
    }
    let at = place_of(i);
    let phase = parameters.phase;
    let amplitude = parameters.values.x;
    let frequency = parameters.values.y;
    let u = frequency * at.x;
    let v = frequency * at.y;
    let sum = 0.46 * sine(0.55 * u + 0.30 * v - 3.0 * phase)
            + 0.26 * sine(-0.40 * u + 0.75 * v - 4.0 * phase)
            + 0.14 * sine(1.10 * u + 0.90 * v - 7.0 * phase)
            + 0.14 * sine(2.25 * length(vec2f(u, v)) - 8.0 * phase);
    put(i, vec3f(at.x, HEIGHT * amplitude * sum, at.y), 0.5 + 0.5 * sum);
}

const SOURCES: u32 = 6;

var<workgroup> sources: array<vec2f, SOURCES>;

@compute @workgroup_size(WORKGROUP)
fn ripples(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
           @builtin(local_invocation_index) local: u32) {
    let phase = parameters.phase;
    let amplitude = parameters.values.x;
    let rings = parameters.values.y;
    let spread = parameters.values.z;
    if local < SOURCES {
        let start = f32(local) / f32(SOURCES);
        let turns = vec2f(vec2u(1u + local % 2u, 1u + local % 3u)) * phase;
        sources[local] = spread * vec2f(sine(turns.x + start), sine(turns.y + start + 0.25));
    }
    workgroupBarrier();

    let i = index_of(group, groups, local);
    if i >= parameters.cols * parameters.rows {
        return;
    }
    let at = place_of(i);
    var sum = 0.0;
    for (var s = 0u; s < SOURCES; s++) {
        let away = at - sources[s];
        sum += 0.5 * sine(rings * length(away) - 30.0 * phase) / (1.0 + 10.0 * dot(away, away));
    }
    put(i, vec3f(at.x, HEIGHT * amplitude * sum, at.y), 0.5 + 0.5 * sum);
}

struct Wave {
    direction: vec2f,
    length: f32,
    height: f32,
    turns: f32,
}

const WAVES: u32 = 10;

// Returns wave `k`, as in kernels/ocean.cu.
fn ocean_wave(k: u32) -> Wave {
    switch k {
        case 0u: { return Wave(vec2f(0.960, 0.280), 1.300, 0.0420, 8.0); }
        case 1u: { return Wave(vec2f(0.600, 0.800), 0.900, 0.0250, 9.0); }
        case 2u: { return Wave(vec2f(0.936, -0.352), 0.620, 0.0150, 11.0); }
        case 3u: { return Wave(vec2f(0.352, 0.936), 0.450, 0.0090, 13.0); }
        case 4u: { return Wave(vec2f(0.800, -0.600), 0.340, 0.0060, 15.0); }
        case 5u: { return Wave(vec2f(0.996, 0.096), 0.250, 0.0040, 18.0); }
        case 6u: { return Wave(vec2f(0.280, 0.960), 0.190, 0.0028, 21.0); }
        case 7u: { return Wave(vec2f(0.744, 0.672), 0.140, 0.0019, 24.0); }
        case 8u: { return Wave(vec2f(0.936, 0.352), 0.105, 0.0013, 28.0); }
        default: { return Wave(vec2f(0.480, -0.880), 0.080, 0.0009, 32.0); }
    }
}

@compute @workgroup_size(WORKGROUP)
fn ocean(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
         @builtin(local_invocation_index) local: u32) {
    let i = index_of(group, groups, local);
    if i >= parameters.cols * parameters.rows {
        return;
    }
    let at = place_of(i);
    let amplitude = parameters.values.x;
    let chop = parameters.values.y;
    let wind = parameters.values.z / 360.0;
    let turned = vec2f(sine(wind), sine(wind + 0.25));
    var position = vec3f(at.x, 0.0, at.y);
    var across = vec3f(1.0, 0.0, 0.0);
    var along = vec3f(0.0, 0.0, 1.0);
    for (var k = 0u; k < WAVES; k++) {
        let w = ocean_wave(k);
        let to = vec2f(turned.y * w.direction.x - turned.x * w.direction.y,
                       turned.x * w.direction.x + turned.y * w.direction.y);
        let height = amplitude * w.height;
        let turns = dot(to, at) / w.length - w.turns * parameters.phase;
        let s = sine(turns);
        let c = sine(turns + 0.25);
        position += height * vec3f(chop * to.x * c, s, chop * to.y * c);
        let steep = TAU * height / w.length;
        let slope = vec3f(-chop * to.x * s, c, -chop * to.y * s);
        across += steep * to.x * slope;
        along += steep * to.y * slope;
    }
    let normal = cross(along, across);
    let level = normal.y / sqrt(dot(normal, normal) + 0.01);
    put(i, position, 0.4 + 2.5 * position.y + 1.5 * (1.0 - level));
}

fn hash(seed: u32) -> u32 {
    let a = seed * 747796405u + 2891336453u;
    let b = ((a >> ((a >> 28) + 4u)) ^ a) * 277803737u;
    return (b >> 22) ^ b;
}

// Returns a number from 0 to 1, without 1.
fn unit(bits: u32) -> f32 {
    return f32(bits >> 8) * (1.0 / 16777216.0);
}

@compute @workgroup_size(WORKGROUP)
fn swarm(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
         @builtin(local_invocation_index) local: u32) {
    let i = index_of(group, groups, local);
    if i >= parameters.cols * parameters.rows {
        return;
    }
    let a = hash(i);
    let b = hash(a);
    let c = hash(b);
    let d = hash(c);
    let radius = unit(c);
    let along = unit(a) + f32(1u + (d & 3u)) * parameters.phase;
    let around = unit(b) + f32(3u + ((d >> 2) & 7u)) * parameters.phase;
    let ring = parameters.values.x;
    let away = parameters.values.y * radius;
    let from_middle = ring + away * sine(around + 0.25);
    let position = vec3f(from_middle * sine(along + 0.25), away * sine(around), from_middle * sine(along));
    put(i, position, 1.0 - 0.8 * radius);
}
