// The wave of kernels/wave.cu as a Vulkan compute shader, for machines without CUDA. One invocation a vertex.

struct Parameters {
    cols: u32,
    rows: u32,
    // How far into the loop we are, 0 to 1; the CPU takes it in double precision.
    phase: f32,
    // The bits of a colour that are kept, and those that are set: all and none, unless frames are stamped
    // (src/stamp/mod.rs).
    keep: u32,
    stamp: u32,
    // As in kernels/wave.cu.
    amplitude: f32,
    frequency: f32,
}

var<immediate> parameters: Parameters;
@group(0) @binding(0) var<storage, read_write> vertices: array<vec4f>;

const TAU: f32 = 6.2831853;
const HEIGHT: f32 = 0.30;
const WORKGROUP: u32 = 256;

// The sine of an angle in whole turns. Vulkan promises only 2^-11 of its own sin, between -pi and pi, and SwiftShader uses
// that up. Products and sums are exact but for their rounding everywhere: so this takes whole turns off, folds the rest to a
// quarter turn each way, and sums the series, of which the next term is below 6e-8.
fn sine(turns: f32) -> f32 {
    let rest = turns - round(turns);
    let x = TAU * select(rest, 0.5 * sign(rest) - rest, abs(rest) > 0.25);
    let s = x * x;
    let series = 1.0 / 120.0 + s * (-1.0 / 5040.0 + s * (1.0 / 362880.0 + s * (-1.0 / 39916800.0)));
    return x + x * s * (-1.0 / 6.0 + s * series);
}

@compute @workgroup_size(WORKGROUP)
fn wave(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) local: u32) {
    // Two dimensions of groups, because one may hold no more than 65,535.
    let i = (group.y * groups.x + group.x) * WORKGROUP + local;
    if i >= parameters.cols * parameters.rows {
        return;
    }
    let x = 2.0 * f32(i % parameters.cols) / f32(parameters.cols - 1) - 1.0;
    let z = 2.0 * f32(i / parameters.cols) / f32(parameters.rows - 1) - 1.0;
    let phase = parameters.phase;
    let u = parameters.frequency * x;
    let v = parameters.frequency * z;
    let sum = 0.46 * sine(0.55 * u + 0.30 * v - 3.0 * phase)
            + 0.26 * sine(-0.40 * u + 0.75 * v - 4.0 * phase)
            + 0.14 * sine(1.10 * u + 0.90 * v - 7.0 * phase)
            + 0.14 * sine(2.25 * length(vec2f(u, v)) - 8.0 * phase);
    let colour = (bitcast<u32>(0.5 + 0.5 * sum) & parameters.keep) | parameters.stamp;
    vertices[i] = vec4f(x, HEIGHT * parameters.amplitude * sum, z, bitcast<f32>(colour));
}
