// Lines between points, as wide as `globals.dot_size` says, with round ends; arrows; and a line plot of values.
//!use globals
//!use one
//!use numbers
//!use backdrop
//!use places

// The part of an arrow's length, and the widths of its line, that its head is long at most. It is half as wide on each side.
const HEAD: f32 = 0.4;
const HEAD_WIDTHS: f32 = 5.0;
// A depth in front of the background, of a line plot.
const DEPTH: f32 = 0.5;

// The part of a line that can be in the picture.
struct Segment {
    // In clip space.
    a: vec4f,
    b: vec4f,
    // How far these ends are along the whole line, from 0 to 1.
    from_a: f32,
    to_b: f32,
    // The numbers of its points.
    points: vec2u,
    is_drawn: bool,
}

fn half_width() -> f32 {
    return 0.5 * globals.dot_size;
}

fn is_plot() -> bool {
    return globals.components == 1;
}

fn has_vectors() -> bool {
    return globals.parts.y != 0;
}

// Returns the points of a line. The second of an arrow is its only one, too.
fn points_of(number: u32) -> vec2u {
    if globals.parts.z != 0 {
        let first = globals.parts.z + 2 * number;
        return vec2u(words[first], words[first + 1]);
    }
    return vec2u(number, select(number + 1, number, has_vectors()));
}

fn is_drawn(number: u32) -> bool {
    if is_plot() {
        return is_finite(number_at(number)) && (!has_colours() || colour_of(number).a > 0.0);
    }
    return is_seen(number);
}

// Returns where a value of a line plot lies in clip space.
fn plotted(number: u32) -> vec4f {
    let share = vec2f(f32(number) / f32(globals.grid.x - 1), 1.0 - limited(number_at(number)));
    return vec4f(2.0 * (globals.place.xy + share * globals.place.zw) / globals.picture - 1.0, DEPTH, 1.0);
}

fn clip_of(place: vec3f) -> vec4f {
    return globals.view_projection * vec4f(place, 1.0);
}

// Returns how far a place is on the inner side of a plane: the near plane, or one of four around the picture.
fn distance_to(plane: u32, clip: vec4f) -> f32 {
    // The head of an arrow is wider than its line.
    let margin = 1.0 + 2.0 * (HEAD_WIDTHS + 1.0) * globals.dot_size / globals.picture;
    switch plane {
        case 0 { return clip.w - clip.z; }
        case 1 { return margin.x * clip.w - clip.x; }
        case 2 { return margin.x * clip.w + clip.x; }
        case 3 { return margin.y * clip.w - clip.y; }
        default { return margin.y * clip.w + clip.y; }
    }
}

fn segment_at(number: u32) -> Segment {
    let points = points_of(number);
    var segment = Segment(vec4f(0.0), vec4f(0.0), 0.0, 1.0, points, false);
    // Whole numbers, so that one that is negative is a very large one.
    if any(points >= globals.grid.xx) || !is_drawn(points.x) || !is_drawn(points.y) {
        return segment;
    }
    var a = vec4f(0.0);
    var b = vec4f(0.0);
    if is_plot() {
        a = plotted(points.x);
        b = plotted(points.y);
    } else {
        let place = fitted(place_of(points.x));
        a = clip_of(place);
        if has_vectors() {
            let first = 3 * number;
            let at = globals.parts.y;
            let step = vec3f(number_of(0, at, first), number_of(0, at, first + 1), number_of(0, at, first + 2));
            if !is_place(step) || all(step == vec3f(0.0)) {
                return segment;
            }
            b = clip_of(place + step * globals.fit.w);
        } else {
            b = clip_of(fitted(place_of(points.y)));
        }
    }
    for (var plane = 0u; plane < 5; plane++) {
        let at_a = distance_to(plane, a);
        let at_b = distance_to(plane, b);
        // Also if one is no number, which the product of two large ones may be.
        if !(at_a >= 0.0 || at_b >= 0.0) {
            return segment;
        }
        let cut = at_a / (at_a - at_b);
        if at_a < 0.0 {
            segment.from_a = max(segment.from_a, cut);
        }
        if at_b < 0.0 {
            segment.to_b = min(segment.to_b, cut);
        }
    }
    segment.a = mix(a, b, segment.from_a);
    segment.b = mix(a, b, segment.to_b);
    segment.is_drawn = segment.from_a <= segment.to_b && segment.a.w > 0.0 && segment.b.w > 0.0;
    return segment;
}

// Returns the place in the picture, in pixels.
fn pixel_of(clip: vec4f) -> vec2f {
    return (clip.xy / clip.w * 0.5 + 0.5) * globals.picture;
}

// Returns how long the head of an arrow is, in pixels. One whose end is outside the picture has none.
fn head_of(segment: Segment) -> f32 {
    let long = distance(pixel_of(segment.a), pixel_of(segment.b));
    return select(0.0, min(HEAD * long, HEAD_WIDTHS * globals.dot_size), has_vectors() && segment.to_b == 1.0);
}

struct Point {
    @builtin(position) clip: vec4f,
    @location(0) @interpolate(flat) number: u32,
}

// `index` counts the corners of all lines: six around the line with its ends, and three of a head.
@vertex
fn vertex_main(@builtin(vertex_index) index: u32) -> Point {
    let number = index / 9;
    let corner = index % 9;
    let segment = segment_at(number);
    var point = Point(vec4f(0.0, 0.0, 0.0, 1.0), number);
    if !segment.is_drawn {
        return point;
    }
    let from_a = pixel_of(segment.b) - pixel_of(segment.a);
    let along = select(vec2f(1.0, 0.0), normalize(from_a), any(from_a != vec2f(0.0)));
    let across = vec2f(-along.y, along.x);
    let head = head_of(segment);
    var clip = segment.b;
    // In pixels from there.
    var step = vec2f(0.0);
    if corner < 6 {
        let side = array(vec2f(0.0, -1.0), vec2f(0.0, 1.0), vec2f(1.0, -1.0), vec2f(1.0, -1.0), vec2f(0.0, 1.0), vec2f(1.0, 1.0))[corner];
        clip = select(segment.a, segment.b, side.x == 1.0);
        // With a head, the line ends in it. Without, its ends are round.
        let beyond = select(half_width(), -head, side.x == 1.0 && head > 0.0);
        step = along * beyond * (2.0 * side.x - 1.0) + across * half_width() * side.y;
    } else if corner > 6 && head > 0.0 {
        step = -along * head + across * 0.5 * head * select(-1.0, 1.0, corner == 7);
    }
    point.clip = clip + vec4f(2.0 * step / globals.picture * clip.w, 0.0, 0.0);
    return point;
}

// What a pixel shows of a line.
struct Seen {
    // How far it is along the whole line, from 0 to 1.
    share: f32,
    // w in clip space.
    distance: f32,
    segment: Segment,
}

// `at` is in pixels of the picture. Discards what is beyond the round ends.
fn seen_at(number: u32, at: vec2f) -> Seen {
    let segment = segment_at(number);
    let a = pixel_of(segment.a);
    let b = pixel_of(segment.b);
    let step = b - a;
    let along = select(dot(at - a, step) / dot(step, step), 0.0, all(step == vec2f(0.0)));
    let is_beyond = along <= 0.0 || (along > 1.0 && head_of(segment) == 0.0);
    if is_beyond && distance(at, select(a, b, along > 1.0)) > half_width() {
        discard;
    }
    // One over w is what changes evenly in the picture.
    let part = clamp(along, 0.0, 1.0);
    let inverse = mix(1.0 / segment.a.w, 1.0 / segment.b.w, part);
    let share = part / segment.b.w / inverse;
    return Seen(mix(segment.from_a, segment.to_b, share), 1.0 / inverse, segment);
}

// The colour of a line plot without colours.
const PLOT: vec3f = vec3f(0.75, 0.78, 0.85);

@fragment
fn fragment_main(point: Point) -> @location(0) vec4f {
    let at = point.clip.xy - globals.corner;
    let seen = seen_at(point.number, at);
    let points = seen.segment.points;
    if has_colours() {
        return vec4f(over_background(mix(colour_of(points.x), colour_of(points.y), seen.share), at), 1.0);
    }
    if is_plot() {
        return vec4f(PLOT, 1.0);
    }
    return vec4f(palette_colour(coloured(mix(value_of(points.x), value_of(points.y), seen.share))), 1.0);
}

@fragment
fn facts_main(point: Point) -> Facts {
    let seen = seen_at(point.number, point.clip.xy - globals.corner);
    let number = seen.segment.points.x;
    if is_plot() {
        // As an image, it has no perspective.
        return facts(globals.eye.w, vec4f(0.0, 0.0, 1.0, 1.0), number);
    }
    return facts(globals.radius * seen.distance, vec4f(-axis(), 1.0), number);
}
