// A dot for each point. Needs `dots` and `places`.

// The largest radius of a point with a size of its own, in pixels.
const LARGEST: f32 = 32.0;

fn dot_at(number: u32) -> Dot {
    var size = globals.dot_size;
    if globals.parts.y != 0 {
        size = number_of(0, globals.parts.y, number);
    }
    let is_drawn = is_seen(number) && !is_nan(size) && size > 0.0;
    let clip = select(vec4f(0.0), globals.view_projection * vec4f(fitted(place_of(number)), 1.0), is_drawn);
    return Dot(clip, clamp(0.5 * size, SMALLEST, LARGEST), clamp(coloured(value_of(number)), 0.0, 1.0));
}

// Returns the colour of a dot in a pixel.
fn dot_colour(number: u32, value: f32, pixel: vec2f) -> vec3f {
    if !has_colours() {
        return palette_colour(value);
    }
    return over_background(colour_of(number), pixel);
}
