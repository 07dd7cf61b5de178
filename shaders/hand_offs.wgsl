// How Vulkan reads a frame of examples/hand_offs.rs: it compares every word with what the kernel should have written.

struct Frame {
    words: u32,
    stamp: u32,
    // The place of the frame's first count.
    first: u32,
}

// Vulkan's push constants.
var<immediate> frame: Frame;
@group(0) @binding(0) var<storage, read> slot: array<u32>;
// For each workgroup of each frame, how many words were right.
@group(0) @binding(1) var<storage, read_write> counts: array<u32>;

var<workgroup> right: atomic<u32>;

const THREADS = 256u;
const EACH = 16u;

@compute @workgroup_size(THREADS)
fn check(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    var found = 0u;
    for (var i = 0u; i < EACH; i++) {
        let index = (group.x * EACH + i) * THREADS + thread;
        if index < frame.words && slot[index] == (index ^ (frame.stamp * 0x9e3779b1u)) {
            found++;
        }
    }
    atomicAdd(&right, found);
    workgroupBarrier();
    if thread == 0u {
        counts[frame.first + group.x] += atomicLoad(&right);
    }
}
