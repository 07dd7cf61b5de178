// Writes and reads the texels of one level of an image of any view type and format. For
// `wavefield devices --formats --check` and the tests.
//
// A level's texels lie in a buffer as Vulkan copies them: row after row, then slice after slice (layer after layer,
// face after face), without padding. One thread per texel.
//
// This needs neither clang's headers nor PTX's C names: each access is one instruction, written out.

// The view type of the level; formats/src/kernels.rs has the same numbers.
enum View { D1, D2, D3, D1_ARRAY, D2_ARRAY, CUBE, CUBE_ARRAY };

// The type of the values that a texture object returns.
enum Kind { FLOAT, UNSIGNED, SIGNED };

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

#define SAMPLE(VIEW, KIND, AT) \
    asm volatile("tex.level." VIEW ".v4." KIND ".f32 {%[a], %[b], %[c], %[d]}, [%[texture], " AT "], %[lod];" \
                 : [a] "=r"(out[0]), [b] "=r"(out[1]), [c] "=r"(out[2]), [d] "=r"(out[3]) \
                 : [texture] "l"(texture), [x] "f"(x), [y] "f"(y), [z] "f"(z), [layer] "r"(layer), [lod] "f"(lod))

// The registers are plain 32 bits, so that one line works for floats and integers.
#define SAMPLE_KIND(VIEW, AT) \
    switch (kind) { \
    case UNSIGNED: SAMPLE(VIEW, "u32", AT); break; \
    case SIGNED: SAMPLE(VIEW, "s32", AT); break; \
    default: SAMPLE(VIEW, "f32", AT); break; \
    }

// The normalised coordinate (0 to 1) of the middle of texel i of n. With `between`, of the point half-way to its
// neighbour, where a linear filter must give the mean of both. The last texel has no neighbour: its middle is read.
//
// The division rounds once. A texture unit multiplies by n again, which is then wrong by some millionths of a texel.
// The nearest border is half a texel away. `coordinates_meet_their_texels` in formats/src/kernels.rs tests this.
static __device__ float normalized(unsigned i, unsigned n, bool between)
{
    return ((float)i + (between && i + 1 < n ? 1.0f : 0.5f)) / (float)n;
}

// Reads texels from the texture into the buffer: four channels of 32 bits per texel, for any format.
//
// Width, height and depth are those of the level that the texture object shows. The coordinates are for that level,
// too: normalised, as a texture of a mipmapped array requires, or a direction for a cube. `lod` is the level to ask
// for. The object shows only its own level, so every `lod` must give the same result.
extern "C" __global__ void texture_read(unsigned long long texture, unsigned *texels, unsigned view,
                                        unsigned width, unsigned height, unsigned depth, unsigned kind,
                                        unsigned between, float lod)
{
    Texel at;
    if (!find(at, width, height, depth))
        return;
    unsigned *out = texels + 4 * index(at, width, height);
    float x = normalized(at.x, width, between);
    float y = normalized(at.y, height, between);
    float z = normalized(at.z, depth, between);
    unsigned layer = at.z;
    if (view == CUBE || view == CUBE_ARRAY) {
        // Converts a point on a face, -1 to 1 in each direction, to the direction that points to it.
        float s = 2.0f * x - 1.0f, t = 2.0f * y - 1.0f;
        layer = at.z / 6;
        switch (at.z % 6) {
        case 0: x = 1.0f, y = -t, z = -s; break;
        case 1: x = -1.0f, y = -t, z = s; break;
        case 2: x = s, y = 1.0f, z = t; break;
        case 3: x = s, y = -1.0f, z = -t; break;
        case 4: x = s, y = -t, z = 1.0f; break;
        default: x = -s, y = -t, z = -1.0f; break;
        }
    }
    switch (view) {
    case D1: SAMPLE_KIND("1d", "{%[x]}") break;
    case D2: SAMPLE_KIND("2d", "{%[x], %[y]}") break;
    case D3: SAMPLE_KIND("3d", "{%[x], %[y], %[z], %[z]}") break;
    case D1_ARRAY: SAMPLE_KIND("a1d", "{%[layer], %[x]}") break;
    case D2_ARRAY: SAMPLE_KIND("a2d", "{%[layer], %[x], %[y], %[y]}") break;
    case CUBE: SAMPLE_KIND("cube", "{%[x], %[y], %[z], %[z]}") break;
    default: SAMPLE_KIND("acube", "{%[layer], %[x], %[y], %[z]}") break;
    }
}
