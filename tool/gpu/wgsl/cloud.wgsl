// Draws points as round dots, all of the same size.
//!use globals
//!use numbers
//!use dots

@vertex
fn vertex_main(@builtin(vertex_index) index: u32) -> Dot {
    let first = index / 3 * globals.components;
    let place = vec3f(number_at(first), number_at(first + 1), number_at(first + 2));
    // A point without a value takes its height as the value.
    let number = number_at(first + select(1, globals.components - 1, globals.components == 4));
    let clip = globals.view_projection * vec4f(fitted(place), 1.0);
    var dot = dot_at(index, clip, max(0.5 * globals.dot_size, SMALLEST), clamp(limited(number), 0.0, 1.0));
    if !(is_finite(place.x) && is_finite(place.y) && is_finite(place.z)) || is_nan(number) {
        // All corners coincide, so nothing is drawn.
        dot.clip = vec4f(0.0, 0.0, 0.0, 1.0);
    }
    return dot;
}
