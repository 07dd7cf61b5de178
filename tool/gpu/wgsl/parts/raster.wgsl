// Pictures that compute shaders draw, in place of the graphics pipeline: a visibility buffer, and pixels to copy to the picture.
// Needs `globals` and `backdrop`.

// Must match `Constants` in draw/src/inputs.rs.
struct Raster {
    // The first pixel of this dispatch among those of all pictures, and the number of all pixels.
    begin: u32,
    pixels: u32,
    samples: u32,
    // Whether a colour's first byte is blue.
    is_bgra: u32,
    // The first row of workgroups of this dispatch.
    first: u32,
    // The number of workgroups that share a block of triangles, or of threads that share a dot.
    sharers: u32,
    // The number of blocks of each picture, and of a row of them.
    blocks: u32,
    across: u32,
}

var<immediate> raster: Raster;

// A dispatch draws several pictures of one size: its workgroups' z says which. Must match `VIEWS` in draw/src/inputs.rs.
@group(0) @binding(0) var<uniform> views: array<Globals, 64>;
// What the workgroup draws: the picture's number in this dispatch, its inputs, and its first pixel among those of all.
var<private> view: u32;
var<private> globals: Globals;
var<private> begin: u32;

// Every shader calls this first.
fn set_view(number: u32) {
    view = number;
    globals = views[number];
    begin = raster.begin + number * u32(globals.picture.x) * u32(globals.picture.y);
}

// What is nearest at each sample: the bits of its depth, and below them the complement of its number, so that of two at one
// depth the first is drawn. Depth is reversed: 0 is the farthest. All zeros: nothing. Whoever shades a sample resets it.
@group(2) @binding(0) var<storage, read_write> nearest: array<atomic<u64>>;
// Colours; or depths, then normals, then indices.
@group(2) @binding(1) var<storage, read_write> pixels: array<u32>;

// The number of nothing.
const NOTHING: u32 = 0xffffffff;

// Returns where a sample lies in a pixel: Vulkan's standard sample locations.
fn sample_at(sample: u32) -> vec2f {
    return vec2f(subpixel_at(sample)) / 256.0;
}

// The same in 1/256 of a pixel.
fn subpixel_at(sample: u32) -> vec2i {
    let four = array(vec2i(96, 32), vec2i(224, 96), vec2i(32, 160), vec2i(160, 224));
    return select(four[sample % 4], vec2i(128), raster.samples == 1);
}

// Returns the index of a pixel of the picture, among the pixels of all pictures.
fn index_of(pixel: vec2u) -> u32 {
    return begin + pixel.y * u32(globals.picture.x) + pixel.x;
}

// Records that `number` is at this sample, at a depth from 0 to 1. `is_crowded`: most of what is drawn is hidden. Then a look
// is cheaper; otherwise nothing is, because nobody waits for the atomic's result.
fn show(index: u32, depth: f32, number: u32, is_crowded: bool) {
    let key = (u64(bitcast<u32>(max(depth, 0.0))) << 32u) | u64(~number);
    if !is_crowded || key > atomicLoad(&nearest[index]) {
        atomicMax(&nearest[index], key);
    }
}

// Returns the number of what is nearest, and resets the sample.
fn take(index: u32) -> u32 {
    let key = atomicLoad(&nearest[index]);
    if key == 0 {
        return NOTHING;
    }
    atomicStore(&nearest[index], 0lu);
    return ~u32(key & 0xfffffffflu);
}

fn background_of(pixel: vec2u) -> vec3f {
    let at = vec2f(pixel) + 0.5;
    return background(2.0 * at / globals.picture - 1.0, at);
}

fn write_colour(pixel: vec2u, linear: vec3f) {
    let colour = clamp(linear, vec3f(0.0), vec3f(1.0));
    let srgb = select(1.055 * pow(colour, vec3f(1.0 / 2.4)) - 0.055, 12.92 * colour, colour <= vec3f(0.0031308));
    pixels[index_of(pixel)] = pack4x8unorm(vec4f(select(srgb, srgb.bgr, raster.is_bgra == 1), 1.0));
}

fn write_facts(pixel: vec2u, facts: Facts) {
    let all = raster.pixels;
    let index = index_of(pixel);
    pixels[index] = bitcast<u32>(facts.depth);
    for (var part = 0u; part < 4; part++) {
        pixels[all + 4 * index + part] = bitcast<u32>(facts.normal[part]);
    }
    pixels[5 * all + index] = bitcast<u32>(facts.index);
}

fn write_nothing(pixel: vec2u) {
    write_facts(pixel, Facts(bitcast<f32>(0x7f800000u), vec4f(0.0), -1));
}
