// A dot for each point, all of the same size. Needs `dots` and `numbers`.

fn dot_at(number: u32) -> Dot {
    let first = number * globals.components;
    let place = vec3f(number_at(first), number_at(first + 1), number_at(first + 2));
    // A point without a value takes its height as the value.
    let given = number_at(first + select(1, globals.components - 1, globals.components == 4));
    let is_drawn = is_finite(place.x) && is_finite(place.y) && is_finite(place.z) && !is_masked(given);
    let clip = select(vec4f(0.0), globals.view_projection * vec4f(fitted(place), 1.0), is_drawn);
    return Dot(clip, max(0.5 * globals.dot_size, SMALLEST), clamp(coloured(given), 0.0, 1.0));
}
