// The cells of a grid, each with two triangles, for `walk`. Needs `surface`. A workgroup has a block of cells.

const CORNERS: u32 = (SIDE + 1) * (SIDE + 1);
var<workgroup> corners: array<Corner, CORNERS>;

fn clip_at(at: vec2u) -> vec4f {
    return globals.view_projection * vec4f(place_at(at), 1.0);
}

// Fills `corners` with those of the block.
fn begin_block(block: vec2u, thread: u32) {
    let origin = SIDE * block;
    let last = globals.grid - vec2u(1);
    for (var k = thread; k < CORNERS; k += THREADS) {
        let at = min(origin + vec2u(k % (SIDE + 1), k / (SIDE + 1)), last);
        corners[k] = corner_of(clip_at(at));
    }
}

// Returns the corners of a cell's first or second triangle, as steps from the cell's first corner.
fn steps_of(second: u32) -> array<vec2u, 3> {
    if second == 1 {
        return array(vec2u(1, 0), vec2u(0, 1), vec2u(1, 1));
    }
    return array(vec2u(0, 0), vec2u(0, 1), vec2u(1, 0));
}

// Returns the first corner of the cell that triangle `index` of a block is in. Each cell has two.
fn cell_of(block: vec2u, index: u32) -> vec2u {
    return SIDE * block + vec2u(index / 2 % SIDE, index / 2 / SIDE);
}

fn has_triangle(block: vec2u, index: u32) -> bool {
    return all(cell_of(block, index) < globals.grid - vec2u(1));
}

fn clips_at(block: vec2u, index: u32) -> array<vec4f, 3> {
    let at = cell_of(block, index);
    let steps = steps_of(index % 2);
    return array(clip_at(at + steps[0]), clip_at(at + steps[1]), clip_at(at + steps[2]));
}

// Returns triangle `index` of a block. Its area may be negative.
fn triangle_at(block: vec2u, index: u32) -> Triangle {
    let place = vec2u(index / 2 % SIDE, index / 2 / SIDE);
    let cell = cell_of(block, index);
    let steps = steps_of(index % 2);
    var at = array<u32, 3>();
    for (var i = 0u; i < 3; i++) {
        at[i] = (place.y + steps[i].y) * (SIDE + 1) + place.x + steps[i].x;
    }
    return triangle_of(corners[at[0]], corners[at[1]], corners[at[2]], 2 * (cell.y * globals.grid.x + cell.x) + index % 2);
}

struct Found {
    here: Here,
    // w in clip space.
    distance: f32,
}

// Returns what the middle of a pixel shows of a triangle.
fn found_at(pixel: vec2u, number: u32) -> Found {
    let cell = vec2u(number / 2 % globals.grid.x, number / 2 / globals.grid.x);
    let steps = steps_of(number % 2);
    let at = array(cell + steps[0], cell + steps[1], cell + steps[2]);
    let a = clip_at(at[0]);
    let b = clip_at(at[1]);
    let c = clip_at(at[2]);
    // Relative to the pixel, so that rounding does not matter.
    let place = 2.0 * (vec2f(pixel) + 0.5) / globals.picture - 1.0;
    let to_a = a.xy - place * a.w;
    let to_b = b.xy - place * b.w;
    let to_c = c.xy - place * c.w;
    let step = 2.0 / globals.picture;
    let middle = shares(to_a, to_b, to_c);
    let right = shares(to_a - vec2f(step.x * a.w, 0.0), to_b - vec2f(step.x * b.w, 0.0), to_c - vec2f(step.x * c.w, 0.0));
    let below = shares(to_a - vec2f(0.0, step.y * a.w), to_b - vec2f(0.0, step.y * b.w), to_c - vec2f(0.0, step.y * c.w));
    let sum = middle.x + middle.y + middle.z;
    // A triangle that is seen from its edge has no area but for rounding.
    let share = select(middle / sum, vec3f(1.0 / 3.0), sum == 0.0);
    let places = mat3x2f(vec2f(steps[0]), vec2f(steps[1]), vec2f(steps[2]));
    let in_cell = places * share;
    let width = abs(places * right / (right.x + right.y + right.z) - in_cell)
        + abs(places * below / (below.x + below.y + below.z) - in_cell);
    let tilt = mat3x2f(tilt_at(at[0]), tilt_at(at[1]), tilt_at(at[2])) * share;
    // Counter-clockwise in a picture whose y points down.
    let front = dot(middle, vec3f(a.w, b.w, c.w)) < 0.0;
    return Found(Here(vec2f(cell) + in_cell, width, tilt, front), dot(share, vec3f(a.w, b.w, c.w)));
}

fn colour_at(pixel: vec2u, number: u32, is_wireframe: bool) -> vec3f {
    let here = found_at(pixel, number).here;
    if is_wireframe {
        return wireframe_colour(here);
    }
    return surface_colour(here);
}

fn facts_at(pixel: vec2u, number: u32) -> Facts {
    let found = found_at(pixel, number);
    return surface_facts(found.here, globals.radius * found.distance);
}
