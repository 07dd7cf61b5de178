// Puts the frame's number into every vertex, behind the kernel that wrote them:
// for `wavefield verify`. src/stamp/mod.rs says what the stamp is.
//
// The signature and the launch are those of every kernel here.

// The lowest bits of w are the stamp, the others stay the colour.
constexpr unsigned MASK = 0xfff;

// What a slot's words are before the first frame. It must not be a stamped w.
constexpr unsigned BLANK = 0xffffffff;

extern "C" __global__ void frame_stamp(float4 *vertices, unsigned cols, unsigned rows,
                                       unsigned long long frame, double time)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cols * rows)
        return;
    // Only w is stored. The kernel before has ended, so whoever sees the stamp
    // finds that kernel's position beside it, or a later frame's; and the kernel
    // of a later frame stores its position together with another w.
    unsigned colour = __float_as_uint(vertices[i].w) & ~MASK;
    // A colour that is not a number may have any bits, these too. Without the
    // sign it is still not a number.
    if (colour == (BLANK & ~MASK))
        colour &= 0x7fffffff;
    vertices[i].w = __uint_as_float(colour | ((unsigned)(frame + 1) & MASK));
}
