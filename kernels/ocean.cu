// An ocean of Gerstner waves: `wavefield --kernel ocean`.
//
// What it teaches: fast sines and cosines, and normals from a formula. A point of
// the water goes around in a circle, so x and z move too, and crests are sharper
// than troughs. Both need the sine and the cosine of the same angle: __sincosf
// gives the two for little more than one. wave.cu has the signature.

constexpr float TAU = 6.2831853f;

// Seconds after which the field repeats.
constexpr double LOOP = 40.0;

// How far the circles reach sideways: with 0 only y moves, with more than about
// 1 the crests would turn over.
constexpr float CHOP = 0.85f;

constexpr unsigned WAVES = 10;

// x and z: the direction, of length 1. length: from crest to crest. turns: how
// often the wave passes in a loop, a whole number near 9 / sqrt(length), because
// long waves are faster in deep water.
struct Wave {
    float x, z, length, height, turns;
};

// The same for all threads, and read by all of them in the same order: that is
// what constant memory is for.
__constant__ Wave waves[WAVES] = {
    {0.960f, 0.280f, 1.300f, 0.0420f, 8.0f},   {0.600f, 0.800f, 0.900f, 0.0270f, 9.0f},
    {0.936f, -0.352f, 0.620f, 0.0180f, 11.0f}, {0.352f, 0.936f, 0.450f, 0.0120f, 13.0f},
    {0.800f, -0.600f, 0.340f, 0.0090f, 15.0f}, {0.996f, 0.096f, 0.250f, 0.0070f, 18.0f},
    {0.280f, 0.960f, 0.190f, 0.0050f, 21.0f},  {0.744f, 0.672f, 0.140f, 0.0035f, 24.0f},
    {0.936f, 0.352f, 0.105f, 0.0025f, 28.0f},  {0.480f, -0.880f, 0.080f, 0.0020f, 32.0f},
};

extern "C" __global__ void ocean(float4 *vertices, unsigned cols, unsigned rows,
                                 unsigned long long frame, double time)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cols * rows)
        return;
    unsigned row = i / cols, col = i - row * cols;
    float x0 = __fdividef(2.0f * col, cols - 1) - 1.0f;
    float z0 = __fdividef(2.0f * row, rows - 1) - 1.0f;

    double loops = time * (1.0 / LOOP);
    float turn = (float)(loops - floor(loops));

    float x = x0, y = 0.0f, z = z0;
    // The normal of the moved surface, which each wave tilts.
    float nx = 0.0f, ny = 1.0f, nz = 0.0f;
    for (unsigned k = 0; k < WAVES; k++) {
        const Wave &w = waves[k];
        float turns = __fdividef(w.x * x0 + w.z * z0, w.length) - w.turns * turn;
        // __sincosf is accurate only near zero, so whole turns are taken off.
        float s, c;
        __sincosf(TAU * (turns - rintf(turns)), &s, &c);
        x += CHOP * w.height * w.x * c;
        y += w.height * s;
        z += CHOP * w.height * w.z * c;
        // The derivative of the angle times the height: how steep the wave is.
        float steep = __fdividef(TAU * w.height, w.length);
        nx -= steep * w.x * c;
        ny -= CHOP * steep * s;
        nz -= steep * w.z * c;
    }

    // The normal's y, of length 1, is 1 where the water is level. Steep water and
    // high water are shown bright: there an ocean has its foam.
    float level = ny * rsqrtf(nx * nx + ny * ny + nz * nz);
    vertices[i] = make_float4(x, y, z, 0.4f + 2.5f * y + 1.2f * (1.0f - level));
}
