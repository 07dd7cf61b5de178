// kernels/texture.cu as Vulkan compute shaders, for machines without CUDA. One invocation per texel; handoff/src/contents/texture.rs
// describes a texel.

struct Parameters {
    // The position in the looped animation, 0 to 1. The CPU computes it in double precision.
    phase: f32,
    // The frame's stamp for every texel, or NO_STAMP: see handoff/src/contents/frame_stamp/texel.rs.
    stamp: u32,
}

var<immediate> parameters: Parameters;
@group(0) @binding(0) var target_level: texture_storage_2d<rgba16float, write>;
// The next larger level, which only `reduce` uses.
@group(1) @binding(0) var above: texture_2d<f32>;

const NO_STAMP: u32 = 0xffffffff;

//!use sine

const SLOPE: f32 = 0.06;
const LINES: f32 = 7.0;
const FLAT: f32 = 0.004;

// Returns the height and the slopes of one wave.
fn wave(weight: f32, waves: vec2f, angle: f32) -> vec3f {
    return vec3f(weight * sine(angle), TAU * weight * sine(angle + 0.25) * waves);
}

// Returns the texel with the stamp: three bits in each half float, which becomes a normal number.
fn stamped(texel: vec4f) -> vec4f {
    if parameters.stamp == NO_STAMP {
        return texel;
    }
    let xy = pack2x16float(texel.xy);
    let zw = pack2x16float(texel.zw);
    let halves = vec4u(xy, xy >> 16, zw, zw >> 16);
    var exponents = halves & vec4u(0x7c00);
    exponents = select(exponents, vec4u(0x0400), exponents == vec4u(0));
    exponents = select(exponents, vec4u(0x7800), exponents == vec4u(0x7c00));
    let parts = (vec4u(parameters.stamp) >> vec4u(0, 3, 6, 9)) & vec4u(7);
    let made = (halves & vec4u(0x83f8)) | exponents | parts;
    return vec4f(unpack2x16float(made.x | (made.y << 16)), unpack2x16float(made.z | (made.w << 16)));
}

@compute @workgroup_size(8, 8)
fn paint(@builtin(global_invocation_id) at: vec3u) {
    let size = textureDimensions(target_level);
    if any(at.xy >= size) {
        return;
    }
    let uv = (vec2f(at.xy) + 0.5) / vec2f(size);
    let phase = parameters.phase;
    let sum = wave(0.40, vec2f(2.0, 1.0), 2.0 * uv.x + uv.y - 3.0 * phase)
            + wave(0.28, vec2f(-1.0, 3.0), 3.0 * uv.y - uv.x - 4.0 * phase)
            + wave(0.18, vec2f(5.0, 2.0), 5.0 * uv.x + 2.0 * uv.y - 7.0 * phase)
            + wave(0.14, vec2f(3.0, -4.0), 3.0 * uv.x - 4.0 * uv.y + 5.0 * phase);
    // `steep` is the number of lines per texel, so a distance over `steep` is in texels.
    let steep = max(length(LINES * sum.yz / vec2f(size)), FLAT);
    let lines = LINES * sum.x;
    let line = clamp(1.5 - abs(lines - round(lines)) / steep, 0.0, 1.0);
    textureStore(target_level, at.xy, stamped(vec4f(0.5 + 0.5 * sum.x, SLOPE * sum.yz, line)));
}

@compute @workgroup_size(8, 8)
fn reduce(@builtin(global_invocation_id) at: vec3u) {
    if any(at.xy >= textureDimensions(target_level)) {
        return;
    }
    let last = textureDimensions(above) - vec2u(1);
    let near = 2 * at.xy;
    // If `above` has only one row or column, that counts twice.
    let far = min(near + vec2u(1), last);
    let sum = textureLoad(above, near, 0) + textureLoad(above, vec2u(far.x, near.y), 0)
            + textureLoad(above, vec2u(near.x, far.y), 0) + textureLoad(above, far, 0);
    textureStore(target_level, at.xy, stamped(0.25 * sum));
}
