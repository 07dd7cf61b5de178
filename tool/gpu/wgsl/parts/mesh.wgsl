// A slot with a mesh: a position and a value for each vertex.

@group(1) @binding(0) var<storage, read> vertices: array<vec4f>;

// Returns a vertex in the array's units.
fn vertex_at(at: vec2u) -> vec4f {
    return vertices[at.y * globals.grid.x + at.x];
}

// Returns a difference of positions as it is drawn. So does this for a pixel what `fitted` would do for each vertex around
// it, which takes 4 % of a small grid's frame (H200).
fn fitted_step(step: vec3f) -> vec3f {
    return step * globals.fit.w;
}

// Returns the position at which the vertex is drawn.
fn place_at(at: vec2u) -> vec3f {
    return fitted(vertex_at(at).xyz);
}

// Returns vertex `number`, counted row after row, as it is drawn.
fn numbered(number: u32) -> vec4f {
    let vertex = vertices[number];
    return vec4f(fitted(vertex.xyz), vertex.w);
}
