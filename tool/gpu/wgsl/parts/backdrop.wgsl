// The gradient behind everything. `at` is the position in the picture, -1 to 1 in both directions.

const TOP: vec3f = vec3f(0.0035, 0.0050, 0.0090);
const GLOW: vec3f = vec3f(0.018, 0.025, 0.043);

// Returns the background's colour. `at` is as for `backdrop`; `pixel` is the position in the picture, in pixels.
fn background(at: vec2f, pixel: vec2f) -> vec3f {
    // Noise of less than one step of 8 bits, so that the gradient shows no bands.
    let noise = fract(52.9829189 * fract(dot(pixel, vec2f(0.06711056, 0.00583715)))) - 0.5;
    return backdrop(at) * (1.0 + noise * 0.06);
}

fn backdrop(at: vec2f) -> vec3f {
    let scaled = at * vec2f(0.75, 1.0);
    return mix(TOP, GLOW, exp(-1.6 * dot(scaled, scaled)));
}
