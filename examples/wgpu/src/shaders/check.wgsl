// Checks whether every word of a slot is the one that `pattern.ptx` writes in this frame.

struct Frame {
    number: u32,
    cols: u32,
    rows: u32,
}

@group(0) @binding(0) var<uniform> frame: Frame;
// The number of checked words and of wrong words, each in two halves: 10,000 frames have more than 2^32 words.
@group(0) @binding(1) var<storage, read_write> counts: array<atomic<u32>, 4>;
@group(0) @binding(2) var<storage, read> vertices: array<vec4<u32>>;
@group(0) @binding(3) var texels: texture_2d<u32>;
// Only where wgpu writes the words instead of CUDA.
@group(0) @binding(2) var<storage, read_write> own_vertices: array<vec4<u32>>;
@group(0) @binding(3) var own_texels: texture_storage_2d<rgba16uint, write>;

// ANCHOR: compare
fn words(index: u32) -> vec4<u32> {
    let place = 4u * index + vec4(0u, 1u, 2u, 3u);
    return ((place ^ (place >> vec4(16u))) ^ vec4(frame.number * 0x9e3779b1u)) * 0x85ebca77u;
}

var<workgroup> seen: atomic<u32>;
var<workgroup> wrong: atomic<u32>;

fn add(low: u32, count: u32) {
    let before = atomicAdd(&counts[low], count);
    if before + count < before {
        atomicAdd(&counts[low + 1u], 1u);
    }
}

fn compare(found: vec4<u32>, expected: vec4<u32>) {
    let differ = select(vec4(0u), vec4(1u), found != expected);
    atomicAdd(&seen, 4u);
    atomicAdd(&wrong, differ.x + differ.y + differ.z + differ.w);
}
// ANCHOR_END: compare

// ANCHOR: look
fn report(local: u32) {
    workgroupBarrier();
    if local == 0u {
        add(0u, atomicLoad(&seen));
        let count = atomicLoad(&wrong);
        if count > 0u {
            add(2u, count);
        }
    }
}

@compute @workgroup_size(16, 16)
fn check_buffer(@builtin(global_invocation_id) at: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    if at.x < frame.cols && at.y < frame.rows {
        let index = at.y * frame.cols + at.x;
        compare(vertices[index], words(index));
    }
    report(local);
}
// ANCHOR_END: look

@compute @workgroup_size(16, 16)
fn check_texture(@builtin(global_invocation_id) at: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    if at.x < frame.cols && at.y < frame.rows {
        compare(textureLoad(texels, at.xy, 0), words(at.y * frame.cols + at.x) & vec4(0xffffu));
    }
    report(local);
}

@compute @workgroup_size(16, 16)
fn fill_buffer(@builtin(global_invocation_id) at: vec3<u32>) {
    if at.x < frame.cols && at.y < frame.rows {
        let index = at.y * frame.cols + at.x;
        own_vertices[index] = words(index);
    }
}

@compute @workgroup_size(16, 16)
fn fill_texture(@builtin(global_invocation_id) at: vec3<u32>) {
    if at.x < frame.cols && at.y < frame.rows {
        textureStore(own_texels, at.xy, words(at.y * frame.cols + at.x) & vec4(0xffffu));
    }
}

@vertex
fn attachment_vertex(@builtin(vertex_index) index: u32) -> @builtin(position) vec4<f32> {
    return vec4(f32(index & 1u) * 4.0 - 1.0, f32(index >> 1u) * 4.0 - 1.0, 0.0, 1.0);
}

@fragment
fn attachment_fragment(@builtin(position) at: vec4<f32>) -> @location(0) vec4<u32> {
    return words(u32(at.y) * frame.cols + u32(at.x)) & vec4(0xffffu);
}
