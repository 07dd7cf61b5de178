// A slot with a mesh: a position and a value for each vertex.

@group(1) @binding(0) var<storage, read> vertices: array<vec4f>;

fn vertex_at(at: vec2u) -> vec4f {
    return numbered(at.y * globals.grid.x + at.x);
}

// Returns the position at which the vertex is drawn.
fn place_at(at: vec2u) -> vec3f {
    return vertex_at(at).xyz;
}

// Returns vertex `number`, counted row after row.
fn numbered(number: u32) -> vec4f {
    let vertex = vertices[number];
    return vec4f(fitted(vertex.xyz), vertex.w);
}
