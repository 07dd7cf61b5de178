// Writes the frame's number into every vertex, after the kernel that wrote them:
// for `wavefield verify`. handoff/src/contents/frame_stamp.rs explains the stamp.
//
// The signature and the launch are the same as for every kernel here.

// The lowest bits of w become the stamp, the others keep the colour.
constexpr unsigned MASK = 0xfff;

// The value of a slot's words before the first frame. No stamped w may have it.
constexpr unsigned BLANK = 0xffffffff;

extern "C" __global__ void frame_stamp(float4 *vertices, unsigned cols, unsigned rows,
                                       unsigned long long frame, double time)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cols * rows)
        return;
    // Only w is written. The kernel before has ended, so a reader of this stamp sees
    // that kernel's position, or a later frame's. And the kernel of a later frame
    // writes its position together with another w.
    unsigned colour = __float_as_uint(vertices[i].w) & ~MASK;
    // A colour that is NaN may have any bits, also those of BLANK. Without the
    // sign bit it is still NaN.
    if (colour == (BLANK & ~MASK))
        colour &= 0x7fffffff;
    vertices[i].w = __uint_as_float(colour | ((unsigned)(frame + 1) & MASK));
}
