// Draws dots by compute. Needs `raster`, `dots`, and functions `dot_at` and `dot_colour`. A dot covers whole pixels, so there is one sample.

// `raster.sharers` threads share a dot: each draws some of its rows.
@compute @workgroup_size(256)
fn raster_main(
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    set_view(group.z);
    let thread = ((raster.first + group.y) * groups.x + group.x) * (256 / raster.sharers) + lane / raster.sharers;
    if thread >= globals.grid.x * globals.grid.y {
        return;
    }
    let dot = dot_at(thread);
    // Before the near plane or behind the eye.
    if !(dot.clip.w > 0.0 && dot.clip.z >= 0.0 && dot.clip.z <= dot.clip.w) {
        return;
    }
    let depth = dot.clip.z / dot.clip.w;
    let centre = centre_of(dot.clip);
    let last = vec2i(globals.picture) - 1;
    let low = vec2i(max(ceil(centre - dot.radius - 0.5), vec2f(0.0)));
    let high = vec2i(min(floor(centre + dot.radius - 0.5), vec2f(last)));
    for (var y = low.y + i32(lane % raster.sharers); y <= high.y; y += i32(raster.sharers)) {
        for (var x = low.x; x <= high.x; x++) {
            if distance(vec2f(vec2i(x, y)) + 0.5, centre) <= dot.radius {
                show(index_of(vec2u(vec2i(x, y))), depth, thread, true);
            }
        }
    }
}

@compute @workgroup_size(32, 8)
fn shade_main(@builtin(workgroup_id) group: vec3u, @builtin(global_invocation_id) id: vec3u) {
    set_view(group.z);
    if any(id.xy >= vec2u(globals.picture)) {
        return;
    }
    let number = take(index_of(id.xy));
    if number == NOTHING {
        write_colour(id.xy, background_of(id.xy));
    } else {
        write_colour(id.xy, dot_colour(number, dot_at(number).value, vec2f(id.xy) + 0.5));
    }
}

@compute @workgroup_size(32, 8)
fn shade_facts_main(@builtin(workgroup_id) group: vec3u, @builtin(global_invocation_id) id: vec3u) {
    set_view(group.z);
    if any(id.xy >= vec2u(globals.picture)) {
        return;
    }
    let number = take(index_of(id.xy));
    if number == NOTHING {
        write_nothing(id.xy);
    } else {
        write_facts(id.xy, dot_facts(number, globals.radius * dot_at(number).clip.w));
    }
}
