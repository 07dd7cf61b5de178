// Points: their places, values and colours. Needs `numbers` and `backdrop`.

// Returns the place of a point in the array's units.
fn place_of(number: u32) -> vec3f {
    let first = number * globals.components;
    return vec3f(number_at(first), number_at(first + 1), number_at(first + 2));
}

// Returns the number that the colour map shows. A point without a value takes its height as the value.
fn value_of(number: u32) -> f32 {
    return number_at(number * globals.components + select(1, globals.components - 1, globals.components == 4));
}

fn is_place(place: vec3f) -> bool {
    return is_finite(place.x) && is_finite(place.y) && is_finite(place.z);
}

fn has_colours() -> bool {
    return globals.parts.x != 0;
}

// Returns the linear colour that a point was given, multiplied by its alpha. Without `palette`, for vertex shaders.
fn colour_of(number: u32) -> vec4f {
    let first = number * globals.colours.x;
    let scale = select(1.0, 1.0 / 255.0, globals.colours.y == U8);
    var given = vec4f(1.0);
    for (var part = 0u; part < globals.colours.x; part++) {
        let number = number_of(globals.colours.y, globals.parts.x, first + part);
        if is_nan(number) {
            return vec4f(0.0);
        }
        given[part] = clamp(number * scale, 0.0, 1.0);
    }
    return vec4f(linear(given.rgb) * given.a, given.a);
}

// Returns whether a point is drawn: not if its place, or what its colour is made of, is missing. Nor is one that is
// transparent.
fn is_seen(number: u32) -> bool {
    if !is_place(place_of(number)) {
        return false;
    }
    if has_colours() {
        // Three bytes are always a colour, which need not be read.
        return (globals.colours.x == 3 && globals.colours.y == U8) || colour_of(number).a > 0.0;
    }
    return !is_masked(value_of(number));
}

// Returns what a pixel shows of a colour: where it is transparent, the background.
fn over_background(colour: vec4f, pixel: vec2f) -> vec3f {
    return colour.rgb + (1.0 - colour.a) * backdrop(2.0 * pixel / globals.picture - 1.0);
}
