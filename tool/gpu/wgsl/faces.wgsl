// Triangles between points.
//!use globals
//!use one
//!use numbers
//!use backdrop
//!use places
//!use light
//!use faces

struct Point {
    @builtin(position) clip: vec4f,
    @location(0) @interpolate(flat) number: u32,
}

// `index` counts the corners of all triangles.
@vertex
fn vertex_main(@builtin(vertex_index) index: u32) -> Point {
    let corners = corners_of(index / 3);
    // A triangle that is not drawn has all corners in one place.
    var point = Point(vec4f(0.0, 0.0, 0.0, 1.0), index / 3);
    if is_face(corners) {
        point.clip = globals.view_projection * vec4f(fitted(place_of(corners[index % 3])), 1.0);
    }
    return point;
}

@fragment
fn fragment_main(point: Point) -> @location(0) vec4f {
    return vec4f(face_colour(point.number, point.clip.xy - globals.corner), 1.0);
}

@fragment
fn facts_main(point: Point) -> Facts {
    return face_facts(point.number, point.clip.xy - globals.corner);
}
