// The animated texture of `--scene texture`. A texel is four half floats: height, two slopes and contour lines.
// handoff/src/contents/texture.rs describes them.
//
// Your own kernel for --scene texture replaces `paint` and must have its signature. `reduce` makes the other levels
// from what it writes.
//
//   surface  a surface object of the level: 8 bytes per texel, R16G16B16A16 half floats
//   width, height  of the level
//   frame    grows by one with each launch
//   time     seconds since the start

constexpr float TAU = 6.2831853f;

// Seconds after which the texture repeats.
constexpr double LOOP = 20.0;

// The factor by which slopes are scaled.
constexpr float SLOPE = 0.06f;
// The number of contour lines from the middle height to the top.
constexpr float LINES = 7.0f;
// The smallest slope, in lines per texel, at which a line keeps its width.
constexpr float FLAT = 0.004f;

// The sine of an angle in turns. __sinf is fast, but accurate only near zero, so
// whole turns are removed first.
static __device__ float sine(float turns)
{
    return __sinf(TAU * (turns - rintf(turns)));
}

static __device__ unsigned short to_half(float a)
{
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(a));
    return half;
}

static __device__ float to_float(unsigned short half)
{
    float a;
    asm("cvt.f32.f16 %0, %1;" : "=f"(a) : "h"(half));
    return a;
}

// A texel as it lies in memory.
struct Halves {
    unsigned short x, y, z, w;
};

// A surface counts x in bytes. Writes outside the surface are ignored (.zero).
static __device__ void store_halves(unsigned long long surface, unsigned x, unsigned y, Halves texel)
{
    asm volatile("sust.b.2d.v4.b16.zero [%0, {%1, %2}], {%3, %4, %5, %6};"
                 :: "l"(surface), "r"(8 * x), "r"(y), "h"(texel.x), "h"(texel.y), "h"(texel.z), "h"(texel.w)
                 : "memory");
}

static __device__ Halves load_halves(unsigned long long surface, unsigned x, unsigned y)
{
    Halves texel;
    asm volatile("suld.b.2d.v4.b16.zero {%0, %1, %2, %3}, [%4, {%5, %6}];"
                 : "=h"(texel.x), "=h"(texel.y), "=h"(texel.z), "=h"(texel.w)
                 : "l"(surface), "r"(8 * x), "r"(y) : "memory");
    return texel;
}

static __device__ void store(unsigned long long surface, unsigned x, unsigned y, float4 texel)
{
    store_halves(surface, x, y, {to_half(texel.x), to_half(texel.y), to_half(texel.z), to_half(texel.w)});
}

static __device__ float4 load(unsigned long long surface, unsigned x, unsigned y)
{
    Halves texel = load_halves(surface, x, y);
    return make_float4(to_float(texel.x), to_float(texel.y), to_float(texel.z), to_float(texel.w));
}

// Adds one wave. `waves_u` and `waves_v` are whole numbers of waves across and along, so that the texture tiles.
static __device__ void add(float4 &sum, float weight, float waves_u, float waves_v, float angle)
{
    sum.x += weight * sine(angle);
    float slope = TAU * weight * sine(angle + 0.25f);
    sum.y += slope * waves_u;
    sum.z += slope * waves_v;
}

extern "C" __global__ void paint(unsigned long long surface, unsigned width, unsigned height,
                                 unsigned long long frame, double time)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = i % width, y = i / width;
    if (y >= height)
        return;

    // In double precision, because a float would lose one bit each time that the time doubles.
    double loops = time * (1.0 / LOOP);
    float turn = (float)(loops - floor(loops));
    float u = __fdividef(x + 0.5f, (float)width), v = __fdividef(y + 0.5f, (float)height);

    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    add(sum, 0.40f,  2.0f,  1.0f, 2.0f * u + v - 3.0f * turn);
    add(sum, 0.28f, -1.0f,  3.0f, 3.0f * v - u - 4.0f * turn);
    add(sum, 0.18f,  5.0f,  2.0f, 5.0f * u + 2.0f * v - 7.0f * turn);
    add(sum, 0.14f,  3.0f, -4.0f, 3.0f * u - 4.0f * v + 5.0f * turn);

    // The lines in the width of a texel, and the distance to the nearest line in texels.
    float steep_u = __fdividef(LINES * sum.y, (float)width), steep_v = __fdividef(LINES * sum.z, (float)height);
    float steep = sqrtf(steep_u * steep_u + steep_v * steep_v);
    steep = steep > FLAT ? steep : FLAT;
    float lines = LINES * sum.x, off = lines - rintf(lines);
    float line = 1.5f - __fdividef(off < 0.0f ? -off : off, steep);
    line = line < 0.0f ? 0.0f : line > 1.0f ? 1.0f : line;

    store(surface, x, y, make_float4(0.5f + 0.5f * sum.x, SLOPE * sum.y, SLOPE * sum.z, line));
}

// Computes one level from the level above: each texel is the mean of four.
extern "C" __global__ void reduce(unsigned long long from, unsigned long long to, unsigned from_width,
                                  unsigned from_height, unsigned width, unsigned height)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = i % width, y = i / width;
    if (y >= height)
        return;
    // If there is only one row or column, it counts twice.
    unsigned right = 2 * x + 1 < from_width ? 2 * x + 1 : 2 * x;
    unsigned below = 2 * y + 1 < from_height ? 2 * y + 1 : 2 * y;
    float4 a = load(from, 2 * x, 2 * y), b = load(from, right, 2 * y);
    float4 c = load(from, 2 * x, below), d = load(from, right, below);
    store(to, x, y, make_float4(0.25f * (a.x + b.x + c.x + d.x), 0.25f * (a.y + b.y + c.y + d.y),
                                0.25f * (a.z + b.z + c.z + d.z), 0.25f * (a.w + b.w + c.w + d.w)));
}

// Writes three bits of a frame's stamp into a half float, which becomes a normal number; see handoff/src/contents/frame_stamp/texel.rs.
static __device__ unsigned short stamped(unsigned short half, unsigned part)
{
    unsigned exponent = half & 0x7c00;
    if (exponent == 0)
        exponent = 0x0400;
    if (exponent == 0x7c00)
        exponent = 0x7800;
    return (unsigned short)((half & 0x83f8) | exponent | (part & 7));
}

// Writes the frame's number into every texel of a level, after the kernels above: for `wavefield verify`. The signature
// and the launch are those of `paint`.
extern "C" __global__ void texture_stamp(unsigned long long surface, unsigned width, unsigned height,
                                         unsigned long long frame, double time)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = i % width, y = i / width;
    if (y >= height)
        return;
    unsigned stamp = (unsigned)(frame + 1);
    Halves texel = load_halves(surface, x, y);
    store_halves(surface, x, y, {stamped(texel.x, stamp), stamped(texel.y, stamp >> 3),
                                 stamped(texel.z, stamp >> 6), stamped(texel.w, stamp >> 9)});
}
