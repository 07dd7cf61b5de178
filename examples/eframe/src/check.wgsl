// Compares a copy of egui's texture with what `squares.cu` writes in this frame.

struct Frame {
    cols: u32,
    rows: u32,
    number: u32,
}

@group(0) @binding(0) var<uniform> frame: Frame;
@group(0) @binding(1) var<storage, read_write> wrong: atomic<u32>;
@group(0) @binding(2) var<storage, read> pixels: array<u32>;

@compute @workgroup_size(256)
fn check(@builtin(global_invocation_id) at: vec3<u32>) {
    let i = at.x;
    if i >= frame.cols * frame.rows {
        return;
    }
    let x = i % frame.cols + frame.number;
    let y = i / frame.cols;
    let red = (x ^ y) % 256u;
    let green = ((x ^ y) + frame.number) % 256u;
    let blue = x % 256u;
    if pixels[i] != (red | (green << 8u) | (blue << 16u) | (255u << 24u)) {
        atomicAdd(&wrong, 1u);
    }
}
