// The wave that the demo draws. The tool `wavefield` draws it too if no other kernel is given,
// and lets its user change the values of the //!PARAM lines; the demo passes 1 and 1.
//
//   vertices    cols * rows vertices, row after row: x y z is the position, and
//               w in about [0, 1] is the position in the colour map
//   frame       grows by one with each launch, for kernels that step a simulation
//   time        seconds since the start
//   parameters  a structure with one float for each //!PARAM line
//
// The launch is one-dimensional, one thread for each vertex, in blocks of 256.
//
// After a change, `scripts/kernels.sh build` makes wave.ptx. The same formula stands in
// shaders/wave.wgsl, for machines without CUDA, and for the tests in
// tool/handoff/src/contents/wave.rs and tests/stand_in/src/cuda.rs.
//
//!PARAM amplitude float 0 2 1 "x"
//!PARAM frequency float 0.25 4 1 "x"

// One float for each line, in the same order.
struct Parameters {
    float amplitude; // scales the height
    float frequency; // scales the position, and so the number of waves in the field
};

constexpr float TAU = 6.2831853f;

// With the default amplitude, y is between -HEIGHT and HEIGHT. x and z span [-1, 1].
constexpr float HEIGHT = 0.30f;

// Seconds after which the field repeats.
constexpr double LOOP = 20.0;

// Rounds to the nearest whole number, for |a| < 2^22: adding 1.5 * 2^23 leaves no
// bits for a fraction. rintf would work too, but it runs in the unit that computes
// sines and roots, and that unit is this kernel's bottleneck.
static __device__ float nearest(float a)
{
    return (a + 12582912.0f) - 12582912.0f;
}

// The sine of an angle in turns. __sinf is fast, but accurate only near zero, so
// whole turns are removed first.
static __device__ float sine(float turns)
{
    return __sinf(TAU * (turns - nearest(turns)));
}

// sqrtf rounds correctly, but costs several times as much. The tiny summand keeps
// the root of 0 from being infinity * 0.
static __device__ float root(float a)
{
    return a * rsqrtf(a + 1e-30f);
}

extern "C" __global__ void wave(float4 *vertices, unsigned cols, unsigned rows,
                                unsigned long long frame, double time, Parameters parameters)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cols * rows)
        return;
    unsigned row = i / cols, col = i - row * cols;

    // The domain is [-1, 1] x [-1, 1] for every grid. __fdividef is faster than / and
    // may be wrong in the last bits, which is not visible.
    float x = __fdividef(2.0f * col, cols - 1) - 1.0f;
    float z = __fdividef(2.0f * row, rows - 1) - 1.0f;

    // The position in the loop, from 0 to 1. Each term below makes a whole number of
    // turns per loop, so the end meets the start. The fraction is computed in double
    // precision, because a float would lose one bit each time that the time doubles.
    // After that a float is enough, and doubles are slow on most GPUs.
    double loops = time * (1.0 / LOOP);
    float turn = (float)(loops - floor(loops));

    // Three plane waves and a ripple from the middle. The weights sum to 1.
    float u = parameters.frequency * x, v = parameters.frequency * z;
    float sum = 0.46f * sine( 0.55f * u + 0.30f * v - 3.0f * turn)
              + 0.26f * sine(-0.40f * u + 0.75f * v - 4.0f * turn)
              + 0.14f * sine( 1.10f * u + 0.90f * v - 7.0f * turn)
              + 0.14f * sine( 2.25f * root(u * u + v * v) - 8.0f * turn);

    // Neighbouring threads write neighbouring vertices, 16 bytes in one store.
    vertices[i] = make_float4(x, HEIGHT * parameters.amplitude * sum, z, 0.5f + 0.5f * sum);
}
