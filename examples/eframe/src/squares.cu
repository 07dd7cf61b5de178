// The picture in egui's panel: squares that move and change. Its pixels are whole numbers, so check.wgsl can compare each.
//
//   pixels    cols * rows pixels, row after row, each of red, green, blue and alpha

extern "C" __global__ void squares(unsigned *pixels, unsigned cols, unsigned rows, unsigned frame)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cols * rows)
        return;
    unsigned x = i % cols + frame, y = i / cols;
    unsigned red = (x ^ y) % 256, green = ((x ^ y) + frame) % 256, blue = x % 256;
    pixels[i] = red | green << 8 | blue << 16 | 255u << 24;
}
