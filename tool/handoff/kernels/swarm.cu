// A swarm of particles: `wavefield --kernel swarm`, best seen as points.
//
// What it teaches: independent random particles without memory. Each thread makes
// the random numbers of its particle by hashing the particle's number. So they are
// the same in every frame, in every order, on every GPU. A particle's position
// depends only on them and on the time. wave.cu explains the signature.
//
//!PARAM radius float 0 1 0.65
//!PARAM tube float 0 0.6 0.28

// The swarm fills a ring. radius: to the middle of its tube. tube: the radius of the tube.
struct Parameters {
    float radius, tube;
};

constexpr float TAU = 6.2831853f;

// Seconds after which the field repeats.
constexpr double LOOP = 60.0;

// Any change of the input changes about half of the bits (the hash "pcg": O'Neill;
// Jarzynski and Olano, "Hash Functions for GPU Rendering").
static __device__ unsigned hash(unsigned a)
{
    a = a * 747796405u + 2891336453u;
    a = ((a >> ((a >> 28) + 4)) ^ a) * 277803737u;
    return (a >> 22) ^ a;
}

// A number from 0 to 1, without 1. A float has room for 24 bits.
static __device__ float unit(unsigned bits)
{
    return (bits >> 8) * (1.0f / 16777216.0f);
}

// The sine and cosine of an angle given in turns: see wave.cu and ocean.cu.
static __device__ void circle(float turns, float *s, float *c)
{
    __sincosf(TAU * (turns - rintf(turns)), s, c);
}

extern "C" __global__ void swarm(float4 *vertices, unsigned cols, unsigned rows,
                                 unsigned long long frame, double time, Parameters parameters)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cols * rows)
        return;

    // Four numbers that are independent of each other and of those of the next
    // particle.
    unsigned a = hash(i), b = hash(a), c = hash(b), d = hash(c);

    double loops = time * (1.0 / LOOP);
    float turn = (float)(loops - floor(loops));

    // All distances from the middle of the tube are equally likely.
    float radius = unit(c);
    // In a loop, one to four turns around the ring, and three to ten turns around the
    // tube. Whole numbers, so that the end meets the start.
    float along = unit(a) + (1 + (d & 3)) * turn;
    float around = unit(b) + (3 + (d >> 2 & 7)) * turn;

    float s, co, up, out;
    circle(along, &s, &co);
    circle(around, &up, &out);
    float away = parameters.tube * radius;
    float from_middle = parameters.radius + away * out;
    vertices[i] = make_float4(from_middle * co, away * up, from_middle * s, 1.0f - 0.8f * radius);
}
