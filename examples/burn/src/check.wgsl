// Compares the heights with what `swell` of main.rs computes.

struct Frame {
    cols: u32,
    rows: u32,
    number: u32,
}

@group(0) @binding(0) var<uniform> frame: Frame;
@group(0) @binding(1) var<storage, read_write> wrong: atomic<u32>;
@group(0) @binding(2) var<storage, read> heights: array<f32>;

@compute @workgroup_size(256)
fn check(@builtin(global_invocation_id) at: vec3<u32>) {
    let i = at.x;
    if i >= frame.cols * frame.rows {
        return;
    }
    let phase = i % frame.cols * 4u + i / frame.cols * 2u + frame.number * 3u;
    let t = phase % 256u;
    let height = f32(t * (256u - t)) / 16384.0;
    if heights[i] != select(-height, height, phase % 512u < 256u) {
        atomicAdd(&wrong, 1u);
    }
}
