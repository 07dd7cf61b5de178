// The same wave as kernels/wave.cu, for machines without CUDA. The kernel's file explains the formula.

struct Constants {
    cols: u32,
    rows: u32,
    // The position in the loop, 0 to 1. The CPU computes it in double precision, as the kernel does.
    turn: f32,
}

// Vulkan's push constants.
var<immediate> constants: Constants;
@group(0) @binding(0) var<storage, read_write> vertices: array<vec4f>;

const TAU: f32 = 6.2831853;
const HEIGHT: f32 = 0.30;

// The sine of an angle in turns. Vulkan promises its own `sin` only between -pi and pi.
fn sine(turns: f32) -> f32 {
    return sin(TAU * (turns - round(turns)));
}

// A row of workgroups holds at most 65,535 of them, so there may be several rows.
@compute @workgroup_size(256)
fn wave(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256 + local;
    if i >= constants.cols * constants.rows {
        return;
    }
    let last = vec2f(vec2u(constants.cols, constants.rows) - vec2u(1));
    let at = 2.0 * vec2f(vec2u(i % constants.cols, i / constants.cols)) / last - vec2f(1.0);
    let turn = constants.turn;
    let sum = 0.46 * sine( 0.55 * at.x + 0.30 * at.y - 3.0 * turn)
            + 0.26 * sine(-0.40 * at.x + 0.75 * at.y - 4.0 * turn)
            + 0.14 * sine( 1.10 * at.x + 0.90 * at.y - 7.0 * turn)
            + 0.14 * sine( 2.25 * length(at) - 8.0 * turn);
    vertices[i] = vec4f(at.x, HEIGHT * sum, at.y, 0.5 + 0.5 * sum);
}
