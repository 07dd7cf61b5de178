// The light on surfaces and triangles. Needs `globals`.

const KEY_LIGHT: vec3f = vec3f(-0.46, 0.74, 0.49);
const KEY_COLOUR: vec3f = vec3f(1.00, 0.95, 0.87);
const SKY: vec3f = vec3f(0.62, 0.72, 0.92);
const GROUND: vec3f = vec3f(0.20, 0.16, 0.22);

// Returns the light from a surface of this colour. `open` is the part of the sky that it sees.
fn lit(base: vec3f, normal: vec3f, to_eye: vec3f, open: f32) -> vec3f {
    // Hemisphere light from sky and ground, and one key light.
    let ambient = mix(GROUND, SKY, 0.5 + 0.5 * normal.y) * 0.42;
    let diffuse = max(dot(normal, KEY_LIGHT), 0.0) * KEY_COLOUR;
    let half_way = normalize(KEY_LIGHT + to_eye);
    let gloss = pow(max(dot(normal, half_way), 0.0), 48.0) * 0.30;
    // A faint rim where the surface turns away, so that crests stand out from each other.
    let rim = pow(1.0 - max(dot(normal, to_eye), 0.0), 4.0) * 0.22;
    return base * (ambient * open + 0.95 * diffuse) + (gloss * KEY_COLOUR + rim * SKY) * open;
}
