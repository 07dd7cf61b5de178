// Round dots that face the eye. Needs `globals`.

struct Dot {
    // The centre. Nothing is drawn if w is 0.
    clip: vec4f,
    // In pixels.
    radius: f32,
    // From 0 to 1 along the colour map.
    value: f32,
}

// The smallest radius, in pixels. Such a dot covers the centre of a pixel wherever it lies.
const SMALLEST: f32 = 0.71;

// Returns a dot's centre, in pixels.
fn centre_of(clip: vec4f) -> vec2f {
    return (clip.xy / clip.w * 0.5 + 0.5) * globals.picture;
}

fn dot_facts(number: u32, depth: f32) -> Facts {
    // A dot faces the eye, so its normal is the opposite of the view's axis.
    return facts(depth, vec4f(-axis(), 1.0), number);
}
