// Triangles between points, lit flat and from both sides. Needs `places` and `light`.

// Returns the numbers of a triangle's corners. One that is negative becomes a very large one.
fn corners_of(number: u32) -> vec3u {
    let first = globals.parts.z + 3 * number;
    return vec3u(words[first], words[first + 1], words[first + 2]);
}

// Whether a triangle is drawn: if all its corners are there.
fn is_face(corners: vec3u) -> bool {
    return all(corners < vec3u(globals.grid.x)) && is_corner(corners.x) && is_corner(corners.y) && is_corner(corners.z);
}

fn is_corner(number: u32) -> bool {
    return is_place(place_of(number)) && (has_colours() || !is_nan(value_of(number)));
}

// Returns the corners of a triangle that is drawn, in clip space.
fn clips_of(corners: vec3u) -> array<vec4f, 3> {
    var clips = array<vec4f, 3>();
    for (var i = 0; i < 3; i++) {
        clips[i] = globals.view_projection * vec4f(fitted(place_of(corners[i])), 1.0);
    }
    return clips;
}

// What a pixel shows of a triangle.
struct Seen {
    corners: vec3u,
    // The share of each corner.
    share: vec3f,
    place: vec3f,
    // On the side of the eye.
    normal: vec3f,
    // w in clip space.
    distance: f32,
}

// `at` is in pixels of the picture.
fn seen_at(number: u32, at: vec2f) -> Seen {
    let corners = corners_of(number);
    let clips = clips_of(corners);
    let place = 2.0 * at / globals.picture - 1.0;
    let middle = shares(clips[0].xy - place * clips[0].w, clips[1].xy - place * clips[1].w, clips[2].xy - place * clips[2].w);
    let sum = middle.x + middle.y + middle.z;
    // At an edge, the centre of a pixel can lie outside. A triangle that is seen from its edge has no area.
    let inside = select(clamp(middle / sum, vec3f(0.0), vec3f(1.0)), vec3f(1.0), sum == 0.0);
    let share = inside / (inside.x + inside.y + inside.z);
    let a = fitted(place_of(corners.x));
    let b = fitted(place_of(corners.y));
    let c = fitted(place_of(corners.z));
    let normal = normalize(cross(b - a, c - a));
    let here = mat3x3f(a, b, c) * share;
    let front = dot(normal, globals.eye.xyz - here) >= 0.0;
    let distance = dot(share, vec3f(clips[0].w, clips[1].w, clips[2].w));
    return Seen(corners, share, here, normal * select(-1.0, 1.0, front), distance);
}

fn face_colour(number: u32, at: vec2f) -> vec3f {
    let seen = seen_at(number, at);
    var colour = vec4f(0.0);
    if has_colours() {
        for (var i = 0; i < 3; i++) {
            colour += seen.share[i] * colour_of(seen.corners[i]);
        }
    } else {
        let values = vec3f(value_of(seen.corners.x), value_of(seen.corners.y), value_of(seen.corners.z));
        colour = vec4f(palette_colour(coloured(dot(seen.share, values))), 1.0);
    }
    let to_eye = normalize(globals.eye.xyz - seen.place);
    let opaque = colour.rgb / max(colour.a, 1e-6);
    return over_background(vec4f(lit(opaque, seen.normal, to_eye, 1.0) * colour.a, colour.a), at);
}

fn face_facts(number: u32, at: vec2f) -> Facts {
    let seen = seen_at(number, at);
    return facts(globals.radius * seen.distance, vec4f(seen.normal, 1.0), number);
}
