// Draws an image onto the picture, by compute.
//!use globals
//!use numbers
//!use backdrop
//!use raster
//!use image

// Whether a position in the picture lies on the image.
fn is_on(at: vec2f) -> bool {
    let from_corner = at - globals.place.xy;
    return all(from_corner >= vec2f(0.0)) && all(from_corner < globals.place.zw);
}

@compute @workgroup_size(32, 8)
fn shade_main(@builtin(workgroup_id) group: vec3u, @builtin(global_invocation_id) id: vec3u) {
    set_view(group.z);
    if any(id.xy >= vec2u(globals.picture)) {
        return;
    }
    let corner = vec2f(id.xy);
    var covered = 0.0;
    for (var sample = 0u; sample < raster.samples; sample++) {
        covered += select(0.0, 1.0, is_on(corner + sample_at(sample)));
    }
    var colour = vec3f(0.0);
    if covered > 0.0 {
        colour += covered * image_colour(corner + 0.5);
    }
    if covered < f32(raster.samples) {
        colour += (f32(raster.samples) - covered) * background_of(id.xy);
    }
    write_colour(id.xy, colour / f32(raster.samples));
}

@compute @workgroup_size(32, 8)
fn shade_facts_main(@builtin(workgroup_id) group: vec3u, @builtin(global_invocation_id) id: vec3u) {
    set_view(group.z);
    if any(id.xy >= vec2u(globals.picture)) {
        return;
    }
    let at = vec2f(id.xy) + 0.5;
    if is_on(at) {
        write_facts(id.xy, image_facts(at));
    } else {
        write_nothing(id.xy);
    }
}
