// Reads a few elements of a slot for the CPU: those under the pointer (run/src/engine/probe.rs). One invocation per element.

@group(0) @binding(0) var<storage, read> words: array<u32>;
// The index of each element's first word.
@group(1) @binding(0) var<storage, read> indices: array<u32>;
// Four words of each: no element has more.
@group(2) @binding(0) var<storage, read_write> values: array<vec4u>;

@compute @workgroup_size(256)
fn probe(@builtin(global_invocation_id) id: vec3u) {
    if id.x < arrayLength(&indices) {
        let last = arrayLength(&words) - 1;
        let at = min(vec4u(indices[id.x]) + vec4u(0, 1, 2, 3), vec4u(last));
        values[id.x] = vec4u(words[at.x], words[at.y], words[at.z], words[at.w]);
    }
}
