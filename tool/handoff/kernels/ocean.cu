// An ocean of Gerstner waves: `wavefield --kernel ocean`.
//
// What it teaches: fast sines and cosines, and normals from a formula. A point of
// the water moves in a circle, so x and z change too, and crests are sharper than
// troughs. This needs the sine and the cosine of the same angle: __sincosf gives
// both for little more than the cost of one. wave.cu explains the signature.
//
//!PARAM amplitude float 0 2 1 "x"
//!PARAM chop float 0 1 0.85
//!PARAM wind float -180 180 0 "degrees"

// chop stretches the circles sideways, which makes crests sharp: with 0 only y
// moves, with more than 1 crests would turn over.
struct Parameters {
    float amplitude, chop, wind;
};

constexpr float TAU = 6.2831853f;

// Seconds after which the field repeats.
constexpr double LOOP = 40.0;

constexpr unsigned WAVES = 10;

// x and z: the direction, of length 1. length: from crest to crest. turns: how
// often the wave passes in a loop, a whole number near 9 / sqrt(length), because
// long waves are faster in deep water.
struct Wave {
    float x, z, length, height, turns;
};

// The same for all threads, and read by all of them in the same order. Constant
// memory is made for this.
__constant__ Wave waves[WAVES] = {
    {0.960f, 0.280f, 1.300f, 0.0420f, 8.0f},   {0.600f, 0.800f, 0.900f, 0.0250f, 9.0f},
    {0.936f, -0.352f, 0.620f, 0.0150f, 11.0f}, {0.352f, 0.936f, 0.450f, 0.0090f, 13.0f},
    {0.800f, -0.600f, 0.340f, 0.0060f, 15.0f}, {0.996f, 0.096f, 0.250f, 0.0040f, 18.0f},
    {0.280f, 0.960f, 0.190f, 0.0028f, 21.0f},  {0.744f, 0.672f, 0.140f, 0.0019f, 24.0f},
    {0.936f, 0.352f, 0.105f, 0.0013f, 28.0f},  {0.480f, -0.880f, 0.080f, 0.0009f, 32.0f},
};

extern "C" __global__ void ocean(float4 *vertices, unsigned cols, unsigned rows,
                                 unsigned long long frame, double time, Parameters parameters)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cols * rows)
        return;
    unsigned row = i / cols, col = i - row * cols;
    float x0 = __fdividef(2.0f * col, cols - 1) - 1.0f;
    float z0 = __fdividef(2.0f * row, rows - 1) - 1.0f;

    double loops = time * (1.0 / LOOP);
    float turn = (float)(loops - floor(loops));

    // The wind turns the directions of all waves.
    float across, along;
    __sincosf(TAU / 360.0f * parameters.wind, &across, &along);

    float x = x0, y = 0.0f, z = z0;
    // The derivatives of x, y and z along x0 and along z0. The derivative of x along
    // z0 equals that of z along x0.
    float xx = 1.0f, xz = 0.0f, zz = 1.0f, yx = 0.0f, yz = 0.0f;
    for (unsigned k = 0; k < WAVES; k++) {
        const Wave &w = waves[k];
        float wx = along * w.x - across * w.z, wz = across * w.x + along * w.z;
        float turns = __fdividef(wx * x0 + wz * z0, w.length) - w.turns * turn;
        // __sincosf is accurate only near zero, so remove whole turns.
        float s, c;
        __sincosf(TAU * (turns - rintf(turns)), &s, &c);
        float height = parameters.amplitude * w.height;
        x += parameters.chop * height * wx * c;
        y += height * s;
        z += parameters.chop * height * wz * c;
        // The derivative of the angle times the height: how steep the wave is.
        float steep = __fdividef(TAU * height, w.length);
        float narrow = parameters.chop * steep * s;
        xx -= narrow * wx * wx;
        xz -= narrow * wx * wz;
        zz -= narrow * wz * wz;
        yx += steep * wx * c;
        yz += steep * wz * c;
    }

    // The cross product of the two directions is the normal. Scaled to length 1, its
    // y is 1 where the water is level. Steep and high water is bright, like foam. The
    // small summand keeps the result stable where a crest folds and has no normal.
    float nx = yz * xz - zz * yx, ny = zz * xx - xz * xz, nz = xz * yx - yz * xx;
    float level = ny * rsqrtf(nx * nx + ny * ny + nz * nz + 0.01f);
    vertices[i] = make_float4(x, y, z, 0.4f + 2.5f * y + 1.5f * (1.0f - level));
}
