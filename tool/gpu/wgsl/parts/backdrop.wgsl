// The gradient behind everything. `at` is the position in the picture, -1 to 1 in both directions.

const TOP: vec3f = vec3f(0.0035, 0.0050, 0.0090);
const GLOW: vec3f = vec3f(0.018, 0.025, 0.043);

fn backdrop(at: vec2f) -> vec3f {
    let scaled = at * vec2f(0.75, 1.0);
    return mix(TOP, GLOW, exp(-1.6 * dot(scaled, scaled)));
}
