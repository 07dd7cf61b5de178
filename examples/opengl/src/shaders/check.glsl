// Checks whether every word of a slot is the one that examples/wgpu/src/pattern.ptx writes in this frame. With FILL:
// writes those words. With TEXTURE: works on a level of a texture instead of a buffer.

layout(local_size_x = 16, local_size_y = 16) in;

// The number for the words, the columns, the rows, and the level.
layout(location = 0) uniform uvec4 frame;

// The number of checked words and of wrong words, each in two halves: 10,000 frames have more than 2^32 words.
layout(std430, binding = 0) buffer Counts { uint counts[4]; };
#if defined TEXTURE && defined FILL
layout(binding = 0, rgba16ui) writeonly uniform uimage2D texels;
#elif defined TEXTURE
layout(binding = 0) uniform usampler2D texels;
#else
layout(std430, binding = 1) buffer Vertices { uvec4 vertices[]; };
#endif

uvec4 words(uint index) {
    uvec4 place = 4u * index + uvec4(0u, 1u, 2u, 3u);
    return ((place ^ (place >> 16u)) ^ uvec4(frame.x * 0x9e3779b1u)) * 0x85ebca77u;
}

shared uint seen;
shared uint wrong;

void add(uint low, uint count) {
    uint before = atomicAdd(counts[low], count);
    if (before + count < before) {
        atomicAdd(counts[low + 1u], 1u);
    }
}

void main() {
    uvec2 at = gl_GlobalInvocationID.xy;
    uint index = at.y * frame.y + at.x;
    bool inside = at.x < frame.y && at.y < frame.z;
#ifdef FILL
    if (inside) {
#ifdef TEXTURE
        imageStore(texels, ivec2(at), words(index) & 0xffffu);
#else
        vertices[index] = words(index);
#endif
    }
#else
    if (gl_LocalInvocationIndex == 0u) {
        seen = 0u;
        wrong = 0u;
    }
    barrier();
    if (inside) {
#ifdef TEXTURE
        bvec4 differ = notEqual(texelFetch(texels, ivec2(at), int(frame.w)), words(index) & 0xffffu);
#else
        bvec4 differ = notEqual(vertices[index], words(index));
#endif
        uvec4 each = uvec4(differ);
        atomicAdd(seen, 4u);
        atomicAdd(wrong, each.x + each.y + each.z + each.w);
    }
    barrier();
    if (gl_LocalInvocationIndex == 0u) {
        add(0u, seen);
        if (wrong > 0u) {
            add(2u, wrong);
        }
    }
#endif
}
