// Checks a frame. An example adds `wrong_words`, which returns how many words of an element are wrong.

struct Frame {
    cols: u32,
    rows: u32,
    number: u32,
    // The place of the frame's first word.
    first: u32,
}

@group(0) @binding(0) var<uniform> frame: Frame;
@group(0) @binding(1) var<storage, read_write> wrong: atomic<u32>;
@group(0) @binding(2) var<storage, read> words: array<u32>;

@compute @workgroup_size(256)
fn check(@builtin(global_invocation_id) at: vec3<u32>) {
    if at.x < frame.cols * frame.rows {
        let found = wrong_words(at.x);
        if found > 0u {
            atomicAdd(&wrong, found);
        }
    }
}
