// The inputs of every picture, for any content of a slot. Needs `globals`, which `one` or `raster` has.

// Must match `Globals` in draw/src/inputs.rs.
struct Globals {
    view_projection: mat4x4f,
    // In a mesh's units, and else in those of the camera. The fourth number is the distance from the eye to the camera's target.
    eye: vec4f,
    // Columns and rows of the array; points and the like have one row.
    grid: vec2u,
    // The number of tiles in a row.
    tiles: u32,
    // The number of components of an element of the array.
    components: u32,
    // Width and height of the picture in pixels.
    picture: vec2f,
    // The size in pixels of a length of 1 at a distance of 1.
    pixels_per_length: f32,
    // The diameter of a dot in pixels.
    dot_size: f32,
    // The number at the start of the colour map, and the factor that maps differences from it to 0 to 1.
    limits: vec2f,
    // The type of the array's numbers: see `numbers`.
    number: u32,
    // The radius of the sphere that is drawn as the unit sphere: see `fitted`.
    radius: f32,
    // The place of an image or a line plot: left, top, width and height in pixels of the picture.
    place: vec4f,
    // The picture's left and top in the image that is drawn on, which may hold several pictures.
    corner: vec2f,
    // Columns and rows of a surface are divided by these.
    divisors: vec2f,
    // The middle of that sphere, and one over its radius.
    fit: vec4f,
    // Where the parts begin, in words, or 0: colours, sizes or vectors, faces or edges. Then the number of dots, triangles or
    // lines that are drawn.
    parts: vec4u,
    // How numbers become places on the colour map: see `coloured`.
    norm: vec4f,
    // The number of components of a colour, and the type of their numbers.
    colours: vec2u,
    // Where the array's colour map is in the image of all.
    palette: f32,
    // The number of the array's first element among those of all arrays. All is 256 bytes long, as draw/src/inputs.rs says.
    @size(36) first: u32,
}

@group(0) @binding(1) var palette: texture_2d<f32>;
@group(0) @binding(2) var palette_sampler: sampler;

// Returns a position in the units of the camera. The difference of nearby numbers is exact, so this comes first.
fn fitted(place: vec3f) -> vec3f {
    return (place - globals.fit.xyz) * globals.fit.w;
}

// Returns the position of a number between the limits, which are at 0 and 1.
fn limited(number: f32) -> f32 {
    return (number - globals.limits.x) * globals.limits.y;
}

fn linear(srgb: vec3f) -> vec3f {
    return select(pow((srgb + 0.055) / 1.055, vec3f(2.4)), srgb / 12.92, srgb <= vec3f(0.04045));
}

// Norms, as in draw/src/look.rs. Any other is linear.
const LOG: f32 = 1.0;
const SYMLOG: f32 = 2.0;

// As LINEAR of draw/src/look.rs.
const SYMLOG_LINEAR: f32 = 1.1111111;

// Returns the place of a number on the colour map, which covers 0 to 1.
fn coloured(number: f32) -> f32 {
    var at = number * globals.norm.x;
    if globals.norm.w == LOG {
        // Below is the place of the smallest number.
        at = log2(max(at, SMALLEST_NORMAL));
    } else if globals.norm.w == SYMLOG {
        let size = abs(at);
        at = select(sign(at) * (SYMLOG_LINEAR + 0.30103 * log2(max(size, 1.0))), SYMLOG_LINEAR * at, size <= 1.0);
    }
    return (at - globals.norm.y) * globals.norm.z;
}

const SMALLEST_NORMAL: f32 = 1.1754944e-38;

// Whether a number has no colour: NaN, and in a logarithm what is not above 0.
fn is_masked(number: f32) -> bool {
    return is_nan(number) || (globals.norm.w == LOG && !(number > 0.0));
}

fn palette_colour(value: f32) -> vec3f {
    return textureSampleLevel(palette, palette_sampler, vec2f(value, globals.palette), 0.0).rgb;
}

// What a pixel shows, in numbers instead of a colour: for other programs.
struct Facts {
    // The distance from the eye along the view's axis.
    @location(0) depth: f32,
    // The surface's normal, on the side of the eye, and 1.
    @location(1) normal: vec4f,
    // The number of the element that lies there, counted through all arrays.
    @location(2) index: i32,
}

// `number` counts the elements of the array.
fn facts(depth: f32, normal: vec4f, number: u32) -> Facts {
    return Facts(depth, normal, i32(globals.first + number));
}

// Returns a pixel's depth in perspective, in the array's units. Depth is w in clip space, and the fragment shader gets
// one over that w.
fn depth_of(position: vec4f) -> f32 {
    return globals.radius / position.w;
}

// Returns the direction in which the camera looks: clip space's w grows along it.
fn axis() -> vec3f {
    let matrix = globals.view_projection;
    return vec3f(matrix[0].w, matrix[1].w, matrix[2].w);
}

// Returns the shares of a triangle's corners at a place, which is given relative to them, in perspective; not scaled.
fn shares(a: vec2f, b: vec2f, c: vec2f) -> vec3f {
    return vec3f(b.x * c.y - b.y * c.x, c.x * a.y - c.y * a.x, a.x * b.y - a.y * b.x);
}

// Tests the bits, because compilers may assume that no value is NaN.
fn is_nan(number: f32) -> bool {
    return (bitcast<u32>(number) & 0x7fffffff) > 0x7f800000;
}

fn is_finite(number: f32) -> bool {
    return (bitcast<u32>(number) & 0x7f800000) != 0x7f800000;
}
