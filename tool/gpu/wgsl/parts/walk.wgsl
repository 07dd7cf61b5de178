// Draws triangles by compute: a visibility buffer. Needs `raster`, and these of `cells` or `loose_faces`:
//
// - `begin_block`, which a workgroup calls for its block before all else; `has_triangle`, `triangle_at`, `clips_at`: the
//   triangles of a block
// - `colour_at`, `facts_at`: what a pixel shows of a triangle
//
// A workgroup has a block of triangles, and a thread two: it draws them if they are small. 32 threads together, a gang, draw each
// larger one, a block of pixels at a time. If there are few triangles, several workgroups share each block of them.
// `huge_main` draws what is left: triangles that are longer than that, or that must be clipped. It needs many more registers, so
// it is a shader of its own.
//
// Corners are rounded to 1/256 of a pixel, and whether a sample is inside is decided by whole numbers. So each sample on an
// edge that two triangles share belongs to exactly one of them (the top-left rule).

const SIDE: u32 = 16;
const THREADS: u32 = SIDE * SIDE;
const GANG: u32 = 32;
const GANGS: u32 = THREADS / GANG;
// The pixels that a gang draws at once.
const BLOCK: vec2i = vec2i(8, 4);
// A triangle with at most this many pixels around it is drawn by one thread.
const SMALL: i32 = 8;
// A triangle that is longer is left for `huge_main`: 64 pixels. Up to this, products of coordinates have 32 bits.
const LONG: i32 = 16384;

// A corner on the picture.
struct Corner {
    // In 1/256 of a pixel.
    at: vec2i,
    depth: f32,
    state: u32,
}
const IN_FRONT: u32 = 0;
// Its triangles must be clipped.
const BEYOND: u32 = 1;
// Its triangles are not drawn.
const HOLE: u32 = 2;

struct Triangle {
    a: Corner,
    b: Corner,
    c: Corner,
    number: u32,
    // The first and last pixels that may have a sample in it. There is none if a last one is less than the first.
    low: vec2i,
    high: vec2i,
}

// Whether triangles of a block are left for `huge_main`, for each block.
@group(2) @binding(2) var<storage, read_write> has_huge: array<u32>;

// Whether gangs draw each triangle of the block.
var<workgroup> by_gangs: array<u32, 2 * THREADS>;
// Who draws what the threads leave: gangs, `huge_main`, or both.
var<workgroup> left: atomic<u32>;
const FOR_GANGS: u32 = 1;
const HUGE: u32 = 2;

// How far from the picture corners may lie, in halves of its width and height: about a million pixels.
fn guard() -> vec2f {
    return vec2f(1048576.0) / globals.picture;
}

fn corner_of(clip: vec4f) -> Corner {
    // Not finite, or so far away that products of three coordinates would overflow.
    if !(is_finite(clip.x) && is_finite(clip.y) && is_finite(clip.w)) || any(abs(clip) > vec4f(1e12)) {
        return Corner(vec2i(0), 0.0, HOLE);
    }
    if clip.w <= 0.0 || clip.z > clip.w || any(abs(clip.xy) > guard() * clip.w) {
        return Corner(vec2i(0), 0.0, BEYOND);
    }
    return projected(clip);
}

fn projected(clip: vec4f) -> Corner {
    let scale = 1.0 / clip.w;
    let at = (clip.xy * scale * 0.5 + 0.5) * globals.picture;
    return Corner(vec2i(round(at * 256.0)), clip.z * scale, IN_FRONT);
}

fn triangle_of(a: Corner, b: Corner, c: Corner, number: u32) -> Triangle {
    // The samples nearest to a pixel's left or upper edge, and to the others.
    let first = select(32, 128, raster.samples == 1);
    let low = min(a.at, min(b.at, c.at)) - (256 - first) + 255;
    let high = max(a.at, max(b.at, c.at)) - first;
    let last = vec2i(globals.picture) - 1;
    return Triangle(a, b, c, number, max(low >> vec2u(8), vec2i(0)), min(high >> vec2u(8), last));
}

fn state_of(triangle: Triangle) -> u32 {
    return max(triangle.a.state, max(triangle.b.state, triangle.c.state));
}

// Whether the triangle is left for `huge_main`.
fn is_huge(triangle: Triangle) -> bool {
    let low = min(triangle.a.at, min(triangle.b.at, triangle.c.at));
    let high = max(triangle.a.at, max(triangle.b.at, triangle.c.at));
    let state = state_of(triangle);
    return state == BEYOND || (state == IN_FRONT && any(high - low > vec2i(LONG)));
}

// Returns 0 if samples on this edge belong to the triangle, else -1. The triangle is on the right of the edge.
fn bias_of(edge: vec2i) -> i32 {
    return select(-1, 0, edge.y < 0 || (edge.y == 0 && edge.x > 0));
}

// A triangle whose corners are in an order in which its area is positive.
struct Oriented {
    a: Corner,
    b: Corner,
    c: Corner,
    // Its edges, opposite of each corner.
    bc: vec2i,
    ca: vec2i,
    ab: vec2i,
    bias: vec3i,
    // The depth's change for the part of the area that belongs to b, and to c.
    to_b: f32,
    to_c: f32,
}

// `area` is twice the area; it may be negative, but not 0.
fn oriented(triangle: Triangle, area: f32) -> Oriented {
    let a = triangle.a;
    var b = triangle.b;
    var c = triangle.c;
    if area < 0.0 {
        b = triangle.c;
        c = triangle.b;
    }
    let bc = c.at - b.at;
    let ca = a.at - c.at;
    let ab = b.at - a.at;
    let scale = 1.0 / abs(area);
    let bias = vec3i(bias_of(bc), bias_of(ca), bias_of(ab));
    return Oriented(a, b, c, bc, ca, ab, bias, scale * (b.depth - a.depth), scale * (c.depth - a.depth));
}

// Draws a triangle of at most `LONG`: a thread alone, or one of a gang that draws a block of pixels at once.
fn draw_pixels(triangle: Triangle, block: vec2i, lane: i32) {
    let area = cross32(triangle.b.at - triangle.a.at, triangle.c.at - triangle.a.at);
    if area == 0 {
        return;
    }
    let t = oriented(triangle, f32(area));
    let mine = vec2i(lane % block.x, lane / block.x);
    for (var y = triangle.low.y + mine.y; y <= triangle.high.y; y += block.y) {
        for (var x = triangle.low.x + mine.x; x <= triangle.high.x; x += block.x) {
            let index = index_of(vec2u(vec2i(x, y))) * raster.samples;
            for (var sample = 0u; sample < raster.samples; sample++) {
                let at = 256 * vec2i(x, y) + subpixel_at(sample);
                let inside = vec3i(cross32(t.bc, at - t.b.at), cross32(t.ca, at - t.c.at), cross32(t.ab, at - t.a.at));
                if all(inside + t.bias >= vec3i(0)) {
                    let depth = t.a.depth + f32(inside.y) * t.to_b + f32(inside.z) * t.to_c;
                    show(index + sample, depth, triangle.number, false);
                }
            }
        }
    }
}

fn cross32(a: vec2i, b: vec2i) -> i32 {
    return a.x * b.y - a.y * b.x;
}

fn cross64(a: vec2i, b: vec2i) -> i64 {
    return i64(a.x) * i64(b.y) - i64(a.y) * i64(b.x);
}

@compute @workgroup_size(16, 16)
fn raster_main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    set_view(group.z / raster.sharers);
    let sharer = group.z % raster.sharers;
    let block = vec2u(group.x, group.y + raster.first);
    begin_block(block, thread);
    if thread == 0 {
        atomicStore(&left, 0);
    }
    workgroupBarrier();
    for (var index = 2 * thread; index < 2 * thread + 2; index++) {
        let triangle = triangle_at(block, index);
        let state = state_of(triangle);
        let sides = triangle.high - triangle.low + 1;
        var by_gang = 0u;
        if !has_triangle(block, index) || state == HOLE || (state == IN_FRONT && any(sides <= vec2i(0))) {
            // Not drawn.
        } else if is_huge(triangle) {
            atomicOr(&left, HUGE);
        } else if sides.x * sides.y > SMALL {
            by_gang = 1;
            atomicOr(&left, FOR_GANGS);
        } else if thread / GANG % raster.sharers == sharer {
            draw_pixels(triangle, vec2i(1), 0);
        }
        by_gangs[index] = by_gang;
    }
    workgroupBarrier();
    if thread == 0 && sharer == 0 {
        has_huge[view * raster.blocks + block.y * raster.across + block.x] = atomicLoad(&left) & HUGE;
    }
    if (atomicLoad(&left) & FOR_GANGS) == 0 {
        return;
    }
    for (var index = sharer * GANGS + thread / GANG; index < 2 * THREADS; index += raster.sharers * GANGS) {
        if by_gangs[index] == 1 {
            draw_pixels(triangle_at(block, index), BLOCK, i32(thread % GANG));
        }
    }
}

// Whether a whole block of pixels, which begins here, is outside one edge.
fn is_outside(t: Oriented, low: vec2i) -> bool {
    let high = low + 256 * BLOCK;
    // Of each edge the corner of the block that is farthest inside.
    let a = select(low, high, vec2<bool>((t.bc.y < 0), (t.bc.x > 0)));
    let b = select(low, high, vec2<bool>((t.ca.y < 0), (t.ca.x > 0)));
    let c = select(low, high, vec2<bool>((t.ab.y < 0), (t.ab.x > 0)));
    return cross64(t.bc, a - t.b.at) < 0 || cross64(t.ca, b - t.c.at) < 0 || cross64(t.ab, c - t.a.at) < 0;
}

// Draws a gang's share of a triangle of any size: every `gangs`th block of pixels, from block `gang` on.
fn draw_huge(triangle: Triangle, gang: u32, gangs: u32, lane: i32) {
    let area = cross64(triangle.b.at - triangle.a.at, triangle.c.at - triangle.a.at);
    let size = triangle.high - triangle.low;
    if area == 0 || any(size < vec2i(0)) {
        return;
    }
    let t = oriented(triangle, f32(area));
    let across = u32(size.x / BLOCK.x + 1);
    let along = u32(size.y / BLOCK.y + 1);
    for (var block = gang; block < across * along; block += gangs) {
        let corner = triangle.low + BLOCK * vec2i(vec2u(block % across, block / across));
        let pixel = corner + vec2i(lane % BLOCK.x, lane / BLOCK.x);
        if any(pixel > triangle.high) || is_outside(t, 256 * corner) {
            continue;
        }
        let index = index_of(vec2u(pixel)) * raster.samples;
        for (var sample = 0u; sample < raster.samples; sample++) {
            let at = 256 * pixel + subpixel_at(sample);
            let in_a = cross64(t.bc, at - t.b.at) + i64(t.bias.x);
            let in_b = cross64(t.ca, at - t.c.at) + i64(t.bias.y);
            let in_c = cross64(t.ab, at - t.a.at) + i64(t.bias.z);
            if in_a >= 0 && in_b >= 0 && in_c >= 0 {
                let depth = t.a.depth + f32(in_b) * t.to_b + f32(in_c) * t.to_c;
                show(index + sample, depth, triangle.number, true);
            }
        }
    }
}

// Returns how far a place is on the drawn side of a plane: the near plane, or one of the four around the guard band.
fn distance_to(plane: u32, clip: vec4f) -> f32 {
    switch plane {
        case 0 { return clip.w - clip.z; }
        case 1 { return guard().x * clip.w - clip.x; }
        case 2 { return guard().x * clip.w + clip.x; }
        case 3 { return guard().y * clip.w - clip.y; }
        default { return guard().y * clip.w + clip.y; }
    }
}

// Draws a gang's share of a triangle that reaches beyond the near plane or the guard band.
fn draw_clipped(first: array<vec4f, 3>, number: u32, gang: u32, gangs: u32, lane: i32) {
    var polygon = array<vec4f, 8>();
    for (var i = 0u; i < 3; i++) {
        polygon[i] = first[i];
    }
    var count = 3u;
    for (var plane = 0u; plane < 5; plane++) {
        var kept = array<vec4f, 8>();
        var some = 0u;
        for (var i = 0u; i < count; i++) {
            let here = polygon[i];
            let next = polygon[(i + 1) % count];
            let inside = distance_to(plane, here);
            let beyond = distance_to(plane, next);
            // A convex polygon has at most eight corners, but for rounding.
            if inside >= 0.0 && some < 8 {
                kept[some] = here;
                some++;
            }
            if (inside >= 0.0) != (beyond >= 0.0) && some < 8 {
                // From the drawn side to the other, so that two triangles with this edge are cut at the same place.
                let drawn = select(next, here, inside >= 0.0);
                let other = select(here, next, inside >= 0.0);
                let near = max(inside, beyond);
                kept[some] = drawn + (other - drawn) * (near / (near - min(inside, beyond)));
                some++;
            }
        }
        polygon = kept;
        count = some;
    }
    for (var i = 2u; i < count; i++) {
        let triangle = triangle_of(projected(polygon[0]), projected(polygon[i - 1]), projected(polygon[i]), number);
        draw_huge(triangle, gang, gangs, lane);
    }
}

@compute @workgroup_size(16, 16)
fn huge_main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    set_view(group.z / raster.sharers);
    if has_huge[view * raster.blocks + group.y * raster.across + group.x] == 0 {
        return;
    }
    begin_block(group.xy, thread);
    workgroupBarrier();
    for (var index = 2 * thread; index < 2 * thread + 2; index++) {
        by_gangs[index] = select(0u, 1u, has_triangle(group.xy, index) && is_huge(triangle_at(group.xy, index)));
    }
    workgroupBarrier();
    let gang = group.z % raster.sharers * GANGS + thread / GANG;
    let gangs = raster.sharers * GANGS;
    let lane = i32(thread % GANG);
    for (var index = 0u; index < 2 * THREADS; index++) {
        if by_gangs[index] == 0 {
            continue;
        }
        let triangle = triangle_at(group.xy, index);
        if state_of(triangle) == IN_FRONT {
            draw_huge(triangle, gang, gangs, lane);
        } else {
            draw_clipped(clips_at(group.xy, index), triangle.number, gang, gangs, lane);
        }
    }
}

// Returns the mean colour of a pixel's samples. Each triangle is shaded once, in the middle of the pixel.
fn resolved(pixel: vec2u, is_wireframe: bool) -> vec3f {
    let first = index_of(pixel) * raster.samples;
    var numbers = array(NOTHING, NOTHING, NOTHING, NOTHING);
    for (var sample = 0u; sample < raster.samples; sample++) {
        numbers[sample] = take(first + sample);
    }
    var colour = vec3f(0.0);
    for (var sample = 0u; sample < raster.samples; sample++) {
        var count = 0.0;
        var is_first = true;
        for (var other = 0u; other < raster.samples; other++) {
            if numbers[other] == numbers[sample] {
                is_first &= other >= sample;
                count += 1.0;
            }
        }
        if !is_first {
            continue;
        }
        if numbers[sample] == NOTHING {
            colour += count * background_of(pixel);
        } else {
            colour += count * clamp(colour_at(pixel, numbers[sample], is_wireframe), vec3f(0.0), vec3f(1.0));
        }
    }
    return colour / f32(raster.samples);
}

@compute @workgroup_size(32, 8)
fn shade_main(@builtin(workgroup_id) group: vec3u, @builtin(global_invocation_id) id: vec3u) {
    set_view(group.z);
    if all(id.xy < vec2u(globals.picture)) {
        write_colour(id.xy, resolved(id.xy, false));
    }
}

@compute @workgroup_size(32, 8)
fn shade_wireframe_main(@builtin(workgroup_id) group: vec3u, @builtin(global_invocation_id) id: vec3u) {
    set_view(group.z);
    if all(id.xy < vec2u(globals.picture)) {
        write_colour(id.xy, resolved(id.xy, true));
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
        write_facts(id.xy, facts_at(id.xy, number));
    }
}
