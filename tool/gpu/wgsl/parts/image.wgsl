// Colours of an image's pixels: the nearest texel if it is enlarged, a mean if it is reduced. Transparent texels and
// NaN show the background. Needs `globals`, `numbers` and `backdrop`.

// The maximum number of texels along each axis of which a pixel is the mean. If it covers more, it skips some.
const MOST: f32 = 16.0;

// Returns the colour at a position in the picture, in pixels.
fn image_colour(at: vec2f) -> vec3f {
    let size = vec2f(globals.grid);
    let per_pixel = size / globals.place.zw;
    let middle = (at - globals.place.xy) * per_pixel;
    // Slightly less, so that rounding does not blur an image that is neither enlarged nor reduced.
    let count = vec2u(clamp(ceil(per_pixel - 0.001), vec2f(1.0), vec2f(MOST)));
    var sum = vec4f(0.0);
    for (var row = 0u; row < count.y; row++) {
        for (var col = 0u; col < count.x; col++) {
            let part = (vec2f(vec2u(col, row)) + 0.5) / vec2f(count) - 0.5;
            let texel = clamp(floor(middle + part * per_pixel), vec2f(0.0), size - 1.0);
            sum += colour_at(min(vec2u(texel), globals.grid - vec2u(1)));
        }
    }
    sum /= f32(count.x * count.y);
    // A software device would compute what is behind each opaque pixel, too.
    if sum.a < 1.0 {
        sum += (1.0 - sum.a) * vec4f(backdrop(2.0 * at / globals.picture - 1.0), 1.0);
    }
    return sum.rgb;
}

fn image_facts(place: vec2f) -> Facts {
    let size = vec2f(globals.grid);
    let at = (place - globals.place.xy) * size / globals.place.zw;
    let texel = vec2u(clamp(floor(at), vec2f(0.0), size - 1.0));
    // An image has no perspective: all of it is as far away as the camera's target.
    return facts(globals.eye.w, vec4f(0.0, 0.0, 1.0, 1.0), texel.y * globals.grid.x + texel.x);
}

// Returns a linear colour, multiplied by its alpha.
fn colour_at(texel: vec2u) -> vec4f {
    let first = (texel.y * globals.grid.x + texel.x) * globals.components;
    let number = number_at(first);
    if globals.components == 1 {
        let colour = vec4f(palette_colour(clamp(coloured(number), 0.0, 1.0)), 1.0);
        return select(colour, vec4f(0.0), is_masked(number));
    }
    let green = number_at(first + 1);
    let blue = number_at(first + 2);
    // The limits apply to colours only: an alpha of 1, or of 255 for bytes, is always opaque.
    var alpha = 1.0;
    if globals.components == 4 {
        let given = number_at(first + 3);
        let opaque = select(1.0, 255.0, globals.number == U8);
        alpha = clamp(select(given, 0.0, is_nan(given)) / opaque, 0.0, 1.0);
    }
    let colour = linear(clamp(vec3f(limited(number), limited(green), limited(blue)), vec3f(0.0), vec3f(1.0)));
    return select(vec4f(colour * alpha, alpha), vec4f(0.0), is_nan(number) || is_nan(green) || is_nan(blue));
}
