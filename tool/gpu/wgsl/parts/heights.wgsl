// A slot with a height for each vertex of a grid, which is 2 long along its longer side. Needs `numbers`.

// The height difference between the lower and the upper limit.
const RANGE: f32 = 0.6;

fn vertex_of(at: vec2u, height: f32) -> vec4f {
    let cells = vec2f(globals.grid - vec2u(1));
    let place = (2.0 * vec2f(at) - cells) / globals.divisors;
    return vec4f(place.x, RANGE * (limited(height) - 0.5), place.y, height);
}

fn height_at(at: vec2u) -> f32 {
    return number_at(at.y * globals.grid.x + at.x);
}

// Returns the vertex for normals and colours. For a hole, a height that is not finite, it uses a neighbour's height.
fn vertex_at(at: vec2u) -> vec4f {
    let last = globals.grid - vec2u(1);
    var height = height_at(at);
    if !is_finite(height) {
        let low = max(at, vec2u(1)) - vec2u(1);
        let high = min(at + vec2u(1), last);
        var near = array(vec2u(low.x, at.y), vec2u(high.x, at.y), vec2u(at.x, low.y), vec2u(at.x, high.y));
        height = globals.limits.x;
        for (var i = 0; i < 4; i++) {
            let other = height_at(near[i]);
            if is_finite(other) {
                height = other;
            }
        }
    }
    return vertex_of(at, height);
}

// Vertices are in the units of the camera already.
fn fitted_step(step: vec3f) -> vec3f {
    return step;
}

// Returns the position at which the vertex is drawn. It is not finite for a hole, so that its triangles are not drawn.
fn place_at(at: vec2u) -> vec3f {
    return vertex_of(at, height_at(at)).xyz;
}

// Returns vertex `number`, counted row after row.
fn numbered(number: u32) -> vec4f {
    return vertex_of(vec2u(number % globals.grid.x, number / globals.grid.x), number_at(number));
}
