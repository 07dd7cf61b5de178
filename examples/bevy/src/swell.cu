// The mesh that Bevy draws: a swell of parabolas, which looks like a sine. Every number is a fraction of a power of two, so it
// is exact, and check.wgsl can compare each bit.
//
//   vertices    cols * rows vertices, row after row: a position, and a normal that is not of length 1

extern "C" __global__ void swell(float *vertices, unsigned cols, unsigned rows, unsigned frame)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cols * rows)
        return;
    unsigned col = i % cols, row = i / cols;
    unsigned phase = col * 4 + row * 2 + frame * 3, t = phase % 256;
    float sign = phase % 512 < 256 ? 1.0f : -1.0f;
    float height = t * (256 - t) / 65536.0f;
    float slope = (256 - 2 * (float)t) / 256;

    float *vertex = vertices + 6 * i;
    vertex[0] = ((float)col - cols / 2) / 64;
    vertex[1] = sign * height;
    vertex[2] = ((float)row - rows / 2) / 64;
    vertex[3] = -sign * slope;
    vertex[4] = 1;
    vertex[5] = -sign * slope / 2;
}
