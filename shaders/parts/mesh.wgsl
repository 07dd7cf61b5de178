// A slot with a mesh: a place and a value for each vertex.

@group(1) @binding(0) var<storage, read> vertices: array<vec4f>;

fn vertex_at(at: vec2u) -> vec4f {
    return vertices[at.y * globals.grid.x + at.x];
}

// Where it is drawn.
fn place_at(at: vec2u) -> vec3f {
    return vertex_at(at).xyz;
}

// Vertex `number` of all, row after row.
fn numbered(number: u32) -> vec4f {
    return vertices[number];
}
