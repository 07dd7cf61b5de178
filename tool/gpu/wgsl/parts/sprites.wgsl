// Draws dots by the graphics pipeline. Needs `dots`, and functions `dot_at` and `dot_colour`.
//
// A dot is one triangle around the circle, the cheapest shape that leaves out no pixel of it: a square has two, and a point
// of the hardware is missing where its centre is outside the picture.

struct Sprite {
    @builtin(position) clip: vec4f,
    // Centre and radius are in pixels.
    @location(0) @interpolate(flat) centre: vec2f,
    @location(1) @interpolate(flat) radius: f32,
    @location(2) @interpolate(flat) value: f32,
    @location(3) @interpolate(flat) number: u32,
}

// `index` counts the vertices of all dots.
@vertex
fn vertex_main(@builtin(vertex_index) index: u32) -> Sprite {
    let dot = dot_at(index / 3);
    // An equilateral triangle around the unit circle.
    let corner = array(vec2f(0.0, -2.0), vec2f(1.7320509, 1.0), vec2f(-1.7320509, 1.0))[index % 3];
    // Vulkan's four samples are up to 0.395 of a pixel from its centre. None is missed of a pixel whose centre is in the dot.
    let reach = (dot.radius + 0.4) * corner * 2.0 / globals.picture;
    // A dot that is not drawn has all corners in one place.
    let clip = select(vec4f(0.0, 0.0, 0.0, 1.0), dot.clip + vec4f(reach * dot.clip.w, 0.0, 0.0), dot.clip.w != 0.0);
    return Sprite(clip, centre_of(dot.clip), dot.radius, dot.value, index / 3);
}

@fragment
fn fragment_main(sprite: Sprite) -> @location(0) vec4f {
    if distance(sprite.clip.xy - globals.corner, sprite.centre) > sprite.radius {
        discard;
    }
    return vec4f(dot_colour(sprite.number, sprite.value, sprite.clip.xy - globals.corner), 1.0);
}

@fragment
fn facts_main(sprite: Sprite) -> Facts {
    if distance(sprite.clip.xy - globals.corner, sprite.centre) > sprite.radius {
        discard;
    }
    return dot_facts(sprite.number, depth_of(sprite.clip));
}
