// Draws round dots that face the eye. Needs `globals`.
//
// A dot is one triangle around the circle, the cheapest shape that leaves out no pixel of it: a square has two, and a point
// of the hardware is missing where its centre is outside the picture.

struct Dot {
    @builtin(position) clip: vec4f,
    // Centre and radius are in pixels.
    @location(0) @interpolate(flat) centre: vec2f,
    @location(1) @interpolate(flat) radius: f32,
    @location(2) @interpolate(flat) value: f32,
    @location(3) @interpolate(flat) number: u32,
}

// The smallest radius, in pixels. Such a dot covers the centre of a pixel wherever it lies.
const SMALLEST: f32 = 0.71;

// Returns vertex `index`, counted over all dots. `clip` is its dot's centre; `radius` is in pixels.
fn dot_at(index: u32, clip: vec4f, radius: f32, value: f32) -> Dot {
    // An equilateral triangle around the unit circle.
    let corner = array(vec2f(0.0, -2.0), vec2f(1.7320509, 1.0), vec2f(-1.7320509, 1.0))[index % 3];
    var dot: Dot;
    // Vulkan's four samples are up to 0.395 of a pixel from its centre. None is missed of a pixel whose centre is in the dot.
    let reach = (radius + 0.4) * corner * 2.0 / globals.picture;
    dot.clip = clip + vec4f(reach * clip.w, 0.0, 0.0);
    dot.centre = (clip.xy / clip.w * 0.5 + 0.5) * globals.picture;
    dot.radius = radius;
    dot.value = value;
    dot.number = index / 3;
    return dot;
}

@fragment
fn fragment_main(dot: Dot) -> @location(0) vec4f {
    if distance(dot.clip.xy - globals.corner, dot.centre) > dot.radius {
        discard;
    }
    let colour = palette_colour(dot.value);
    return vec4f(colour, 1.0);
}

@fragment
fn facts_main(dot: Dot) -> Facts {
    if distance(dot.clip.xy - globals.corner, dot.centre) > dot.radius {
        discard;
    }
    // A dot faces the eye, so its normal is the opposite of the view's axis.
    return Facts(depth_of(dot.clip), vec4f(-axis(), 1.0), i32(dot.number));
}
