// Draws a surface by the graphics pipeline, directly from the slot. Needs `surface`.
//
// There is no vertex input: both shaders read the slot as a storage buffer. The field is drawn in tiles of TILE x TILE
// cells. Each tile is an instance of one small index buffer, which therefore suits every grid.
//
// The vertex shader passes on only four numbers. With a fifth, an H200 needs 1.9 ms instead of 1.3 ms for a million
// vertices (docs/performance.md, "The draw"). The fragment shader's reads from the slot cost next to nothing.

// Cells along a tile's edge; draw/src/mesh.rs makes the indices.
const TILE: u32 = 32;

struct Point {
    @builtin(position) clip: vec4f,
    // The place in the grid, in cells, and the normal's `tilt`.
    @location(0) at_and_tilt: vec4f,
}

@vertex
fn vertex_main(@builtin(vertex_index) corner: u32, @builtin(instance_index) tile: u32) -> Point {
    let last = globals.grid - vec2u(1);
    let origin = TILE * vec2u(tile % globals.tiles, tile / globals.tiles);
    // Beyond the last row or column, the tile's corners coincide and its triangles vanish.
    let at = min(origin + vec2u(corner % (TILE + 1), corner / (TILE + 1)), last);
    var point: Point;
    point.clip = globals.view_projection * vec4f(place_at(at), 1.0);
    point.at_and_tilt = vec4f(vec2f(at), tilt_at(at));
    return point;
}

fn here_at(point: Point, front: bool) -> Here {
    let at = point.at_and_tilt.xy;
    return Here(at, fwidth(at), point.at_and_tilt.zw, front);
}

@fragment
fn fragment_main(point: Point, @builtin(front_facing) front: bool) -> @location(0) vec4f {
    return vec4f(surface_colour(here_at(point, front)), 1.0);
}

@fragment
fn wireframe_main(point: Point, @builtin(front_facing) front: bool) -> @location(0) vec4f {
    return vec4f(wireframe_colour(here_at(point, front)), 1.0);
}

@fragment
fn facts_main(point: Point, @builtin(front_facing) front: bool) -> Facts {
    return surface_facts(here_at(point, front), depth_of(point.clip));
}
