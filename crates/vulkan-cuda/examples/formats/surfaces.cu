// Writes and reads the texels of one level of an image of any view type and format, through a surface object. For
// `09_formats.rs`.
//
// A level's texels lie in a buffer as Vulkan copies them: row after row, then slice after slice (layer after layer,
// face after face), without padding. One thread per texel.
//
// This needs neither clang's headers nor PTX's C names: each access is one instruction, written out.

// The view type of the level: VkImageViewType.
enum View { D1, D2, D3, CUBE, D1_ARRAY, D2_ARRAY, CUBE_ARRAY };

struct Texel { unsigned x, y, z; };

static __device__ bool find(Texel &at, unsigned width, unsigned height, unsigned depth)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    at = {i % width, i / width % height, i / width / height};
    return at.z < depth;
}

static __device__ unsigned long long index(const Texel &at, unsigned width, unsigned height)
{
    return ((unsigned long long)at.z * height + at.y) * width + at.x;
}

// The coordinates that each surface instruction takes. x counts bytes, and a cube's faces are layers.
#define AT_1D "{%[x]}"
#define AT_2D "{%[x], %[y]}"
#define AT_3D "{%[x], %[y], %[z], %[z]}"
#define AT_A1D "{%[z], %[x]}"
#define AT_A2D "{%[z], %[x], %[y], %[y]}"

#define PLACE [surface] "l"(surface), [x] "r"(at.x * bytes), [y] "r"(at.y), [z] "r"(at.z)

#define WRITE(VIEW, AT) \
    switch (bytes) { \
    case 1: \
        asm volatile("sust.b." VIEW ".b8.zero [%[surface], " AT "], %[a];" \
                     :: PLACE, [a] "h"((unsigned short)((const unsigned char *)texels)[i])); \
        break; \
    case 2: \
        asm volatile("sust.b." VIEW ".b16.zero [%[surface], " AT "], %[a];" \
                     :: PLACE, [a] "h"(((const unsigned short *)texels)[i])); \
        break; \
    case 4: \
        asm volatile("sust.b." VIEW ".b32.zero [%[surface], " AT "], %[a];" :: PLACE, [a] "r"(words[i])); \
        break; \
    case 8: \
        asm volatile("sust.b." VIEW ".v2.b32.zero [%[surface], " AT "], {%[a], %[b]};" \
                     :: PLACE, [a] "r"(words[2 * i]), [b] "r"(words[2 * i + 1])); \
        break; \
    case 16: \
        asm volatile("sust.b." VIEW ".v4.b32.zero [%[surface], " AT "], {%[a], %[b], %[c], %[d]};" \
                     :: PLACE, [a] "r"(words[4 * i]), [b] "r"(words[4 * i + 1]), \
                        [c] "r"(words[4 * i + 2]), [d] "r"(words[4 * i + 3])); \
        break; \
    }

// Copies texels from the buffer to the surface.
extern "C" __global__ void surface_write(unsigned long long surface, const void *texels, unsigned view,
                                         unsigned width, unsigned height, unsigned depth, unsigned bytes)
{
    Texel at;
    if (!find(at, width, height, depth))
        return;
    unsigned long long i = index(at, width, height);
    const unsigned *words = (const unsigned *)texels;
    switch (view) {
    case D1: WRITE("1d", AT_1D) break;
    case D2: WRITE("2d", AT_2D) break;
    case D3: WRITE("3d", AT_3D) break;
    case D1_ARRAY: WRITE("a1d", AT_A1D) break;
    default: WRITE("a2d", AT_A2D) break;
    }
}

#define READ(VIEW, AT) \
    switch (bytes) { \
    case 1: \
        asm volatile("suld.b." VIEW ".b8.zero %[a], [%[surface], " AT "];" : [a] "=h"(half) : PLACE); \
        ((unsigned char *)texels)[i] = (unsigned char)half; \
        break; \
    case 2: \
        asm volatile("suld.b." VIEW ".b16.zero %[a], [%[surface], " AT "];" : [a] "=h"(half) : PLACE); \
        ((unsigned short *)texels)[i] = half; \
        break; \
    case 4: \
        asm volatile("suld.b." VIEW ".b32.zero %[a], [%[surface], " AT "];" : [a] "=r"(words[i]) : PLACE); \
        break; \
    case 8: \
        asm volatile("suld.b." VIEW ".v2.b32.zero {%[a], %[b]}, [%[surface], " AT "];" \
                     : [a] "=r"(words[2 * i]), [b] "=r"(words[2 * i + 1]) : PLACE); \
        break; \
    case 16: \
        asm volatile("suld.b." VIEW ".v4.b32.zero {%[a], %[b], %[c], %[d]}, [%[surface], " AT "];" \
                     : [a] "=r"(words[4 * i]), [b] "=r"(words[4 * i + 1]), \
                       [c] "=r"(words[4 * i + 2]), [d] "=r"(words[4 * i + 3]) : PLACE); \
        break; \
    }

// Copies texels from the surface to the buffer.
extern "C" __global__ void surface_read(unsigned long long surface, void *texels, unsigned view,
                                        unsigned width, unsigned height, unsigned depth, unsigned bytes)
{
    Texel at;
    if (!find(at, width, height, depth))
        return;
    unsigned long long i = index(at, width, height);
    unsigned *words = (unsigned *)texels;
    unsigned short half;
    switch (view) {
    case D1: READ("1d", AT_1D) break;
    case D2: READ("2d", AT_2D) break;
    case D3: READ("3d", AT_3D) break;
    case D1_ARRAY: READ("a1d", AT_A1D) break;
    default: READ("a2d", AT_A2D) break;
    }
}
