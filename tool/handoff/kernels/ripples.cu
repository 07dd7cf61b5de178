// Ripples from sources that move: `wavefield --kernel ripples`.
//
// What it teaches: shared memory. The positions of the sources are the same for
// all vertices. So each block computes them once, and all its threads read them
// from the memory that a block shares. wave.cu explains the signature.
//
//!PARAM amplitude float 0 2 1 "x"
//!PARAM rings float 1 15 6 "per unit"
//!PARAM spread float 0 1 0.8

struct Parameters {
    float amplitude, rings, spread;
};

constexpr float TAU = 6.2831853f;
constexpr float HEIGHT = 0.30f;

// Seconds after which the field repeats.
constexpr double LOOP = 20.0;

constexpr unsigned SOURCES = 6;

struct Source {
    float x, z;
};

// The sine of an angle given in turns: see wave.cu.
static __device__ float sine(float turns)
{
    return __sinf(TAU * (turns - rintf(turns)));
}

extern "C" __global__ void ripples(float4 *vertices, unsigned cols, unsigned rows,
                                   unsigned long long frame, double time, Parameters parameters)
{
    __shared__ Source sources[SOURCES];

    double loops = time * (1.0 / LOOP);
    float turn = (float)(loops - floor(loops));

    // One thread computes each source. A block may have fewer threads than there are
    // sources, so each thread then goes on with the next free source.
    for (unsigned s = threadIdx.x; s < SOURCES; s += blockDim.x) {
        float start = s * (1.0f / SOURCES);
        sources[s].x = parameters.spread * sine((1 + s % 2) * turn + start);
        sources[s].z = parameters.spread * sine((1 + s % 3) * turn + start + 0.25f);
    }
    // Wait until all sources are written. All threads of the block must come here,
    // so threads without a vertex return only after this.
    __syncthreads();

    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cols * rows)
        return;
    unsigned row = i / cols, col = i - row * cols;
    float x = __fdividef(2.0f * col, cols - 1) - 1.0f;
    float z = __fdividef(2.0f * row, rows - 1) - 1.0f;

    // The rings of a source run outwards and get lower with the distance.
    float sum = 0.0f;
    for (unsigned s = 0; s < SOURCES; s++) {
        float dx = x - sources[s].x, dz = z - sources[s].z;
        float square = dx * dx + dz * dz;
        float distance = square * rsqrtf(square + 1e-30f);
        sum += 0.5f * __fdividef(sine(parameters.rings * distance - 30.0f * turn), 1.0f + 10.0f * square);
    }

    // All threads of a warp read the same source at the same time, which costs no
    // more than a read by one of them.
    vertices[i] = make_float4(x, HEIGHT * parameters.amplitude * sum, z, 0.5f + 0.5f * sum);
}
