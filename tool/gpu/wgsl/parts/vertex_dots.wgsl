// A dot for each vertex of a grid. Needs `dots`, and `numbered` of `mesh` or `heights`.

// A dot's radius, as a fraction of the distance between two vertices, so that neighbours do not touch.
const RADIUS: f32 = 0.3;
// The largest radius, in pixels. A larger dot would hide others.
const LARGEST: f32 = 6.0;

fn dot_at(number: u32) -> Dot {
    let vertex = numbered(number);
    let clip = globals.view_projection * vec4f(vertex.xyz, 1.0);
    // The longer side of the field is 2.
    let spacing = 2.0 / f32(max(globals.grid.x, globals.grid.y) - 1);
    let wanted = RADIUS * spacing * globals.pixels_per_length / max(clip.w, 1e-3);
    return Dot(clip, clamp(wanted, SMALLEST, LARGEST), coloured(vertex.w));
}

fn dot_colour(number: u32, value: f32, pixel: vec2f) -> vec3f {
    return palette_colour(value);
}
