// Colours of a surface. Needs `light`, and `vertex_at`, `place_at` and `fitted_step` of `mesh` or `heights`.

// The part of a surface that a pixel shows.
struct Here {
    // The place in the grid, in cells, and its change from this pixel to the next.
    at: vec2f,
    width: vec2f,
    // The normal's `tilt`.
    tilt: vec2f,
    // Whether the side is seen that is up.
    front: bool,
}

// Returns a direction as two numbers: its stereographic projection from straight below. Nearby directions have nearby
// tilts, except those that point nearly straight down.
fn tilt(direction: vec3f) -> vec2f {
    let below = length(direction) + direction.y;
    return select(vec2f(0.0), direction.xz / below, below > 0.0);
}

// Returns the direction, of length 1, that has this tilt.
fn direction(tilt: vec2f) -> vec3f {
    let square = dot(tilt, tilt);
    return vec3f(2.0 * tilt.x, 1.0 - square, 2.0 * tilt.y) / (1.0 + square);
}

// Returns the `tilt` of the normal of a vertex.
fn tilt_at(at: vec2u) -> vec2f {
    let last = globals.grid - vec2u(1);
    let before = max(at, vec2u(1)) - vec2u(1);
    let after = min(at + vec2u(1), last);
    let across = vertex_at(vec2u(after.x, at.y)).xyz - vertex_at(vec2u(before.x, at.y)).xyz;
    let along = vertex_at(vec2u(at.x, after.y)).xyz - vertex_at(vec2u(at.x, before.y)).xyz;
    return tilt(cross(fitted_step(along), fitted_step(across)));
}

// Returns 1 on a fine line, 0 between the lines, which help the eye follow the surface. They are about a pixel wide.
fn lines(uv: vec2f, uv_width: vec2f) -> f32 {
    let at = uv * 32.0;
    let width = uv_width * 32.0;
    let distance = abs(fract(at - 0.5) - 0.5) / max(width, vec2f(1e-6));
    let line = 1.0 - smoothstep(0.4, 1.4, min(distance.x, distance.y));
    // Lines fade out far away, where they would touch.
    return line * (1.0 - smoothstep(0.15, 0.45, max(width.x, width.y)));
}

// The minimum distance between the lines of the grid, in pixels. With growing distance, every second line fades out.
const SPARSE: f32 = 8.0;

// Returns 1 on a line of the grid, 0 between the lines, along one axis.
fn grid_lines(at: f32, last: f32, width: f32) -> f32 {
    let cells_per_pixel = max(width, 1e-6);
    let level = max(log2(SPARSE * cells_per_pixel), 0.0);
    let step = exp2(floor(level));
    let often = distance_to_multiple(at, step);
    let seldom = distance_to_multiple(at, 2.0 * step);
    let border = min(at, last - at);
    let line = vec2f(often, min(seldom, border)) / cells_per_pixel;
    let shown = 1.0 - smoothstep(vec2f(0.3), vec2f(1.3), line);
    return max(shown.x * (1.0 - fract(level)), shown.y);
}

fn distance_to_multiple(at: f32, step: f32) -> f32 {
    return abs(at - step * round(at / step));
}

// Draws the surface as the lines of its grid. The cells are dark, not open, because the lines behind them would make a tangle.
fn wireframe_colour(here: Here) -> vec3f {
    let at = here.at;
    let last = vec2f(globals.grid - vec2u(1));
    let line = max(grid_lines(at.x, last.x, here.width.x), grid_lines(at.y, last.y, here.width.y));
    let cell = min(vec2u(max(at, vec2f(0.0))), vec2u(last) - vec2u(1));
    let part = at - vec2f(cell);
    let before = mix(vertex_at(cell).w, vertex_at(cell + vec2u(1, 0)).w, part.x);
    let after = mix(vertex_at(cell + vec2u(0, 1)).w, vertex_at(cell + vec2u(1, 1)).w, part.x);
    let value = coloured(mix(before, after, part.y));
    let colour = palette_colour(value);
    return mix(DARK + 0.04 * colour, colour, line);
}

const DARK: vec3f = vec3f(0.006, 0.008, 0.014);

struct Lit {
    vertex: vec4f,
    // On the side of the eye.
    normal: vec3f,
}

fn lit_at(here: Here) -> Lit {
    // The cell, and the place in it.
    let at = here.at;
    let last = globals.grid - vec2u(1);
    // At a triangle's edge, the centre of a pixel can lie outside the grid.
    let cell = min(vec2u(max(at, vec2f(0.0))), last - vec2u(1));
    let part = at - vec2f(cell);
    let a = vertex_at(cell);
    let b = vertex_at(cell + vec2u(1, 0));
    let c = vertex_at(cell + vec2u(0, 1));
    let d = vertex_at(cell + vec2u(1, 1));

    // Between normals that point nearly straight down, an interpolated tilt can be anything. Then use the cell's own normal.
    let smooth_normal = direction(here.tilt);
    let cell_normal = cross(fitted_step((c - a).xyz), (b - a).xyz);
    let up = select(smooth_normal, normalize(cell_normal), dot(smooth_normal, cell_normal) < 0.0);
    let vertex = mix(mix(a, b, part.x), mix(c, d, part.x), part.y);
    // Seen from below, the surface shows its other side.
    return Lit(vertex, up * select(-1.0, 1.0, here.front));
}

// Returns what a pixel shows in numbers.
fn surface_facts(here: Here, depth: f32) -> Facts {
    let last = globals.grid - vec2u(1);
    let nearest = min(vec2u(max(round(here.at), vec2f(0.0))), last);
    return facts(depth, vec4f(lit_at(here).normal, 1.0), nearest.y * globals.grid.x + nearest.x);
}

fn surface_colour(here: Here) -> vec3f {
    let last = vec2f(globals.grid - vec2u(1));
    let found = lit_at(here);
    let height = limited(found.vertex.w);
    let normal = found.normal;
    let to_eye = normalize(fitted_step(globals.eye.xyz - found.vertex.xyz));
    // Troughs see less of the sky: a cheap stand-in for ambient occlusion.
    let open = mix(0.62, 1.0, smoothstep(0.15, 0.75, height));
    return lit(palette_colour(coloured(found.vertex.w)), normal, to_eye, open) * (1.0 - 0.16 * lines(here.at / last, here.width / last));
}
