// Reads a few vertices of a slot for the CPU: those under the pointer (src/app/engine/probe.rs). One invocation per vertex.

@group(0) @binding(0) var<storage, read> vertices: array<vec4f>;
// The numbers of these vertices.
@group(1) @binding(0) var<storage, read> indices: array<u32>;
@group(2) @binding(0) var<storage, read_write> values: array<vec4f>;

@compute @workgroup_size(256)
fn probe(@builtin(global_invocation_id) id: vec3u) {
    if id.x < arrayLength(&indices) {
        values[id.x] = vertices[min(indices[id.x], arrayLength(&vertices) - 1)];
    }
}
