// Runs a kernel of handoff/kernels/*.cu on the CPU. An ordinary compiler builds this file and the kernel's source into one program:
//
//     c++ -D SOURCE='"../../handoff/kernels/ripples.cu"' -D KERNEL=ripples tests/cuda_on_cpu.cpp -o PROGRAM
//     PROGRAM COLS ROWS THREADS FRAMES STEP VALUE… > VERTICES
//
// The program launches the kernel for FRAMES frames, STEP seconds apart, in blocks of THREADS threads, and writes the vertices of
// the last frame. The threads of a block are CPU threads, so that ThreadSanitizer sees a race between them. Blocks run one
// after another.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <pthread.h>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __constant__
#define __shared__ static

struct Index {
    unsigned x;
};
static thread_local Index threadIdx, blockIdx;
static Index blockDim;

struct alignas(16) float4 {
    float x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline double min(double a, double b) { return a < b ? a : b; }
// Macros, because the C library has functions of these names.
#define __sinf sinf
#define __sincosf(a, sine, cosine) (*(sine) = sinf(a), *(cosine) = cosf(a))
#define __fdividef(a, b) ((a) / (float)(b))
static inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }

static pthread_barrier_t barrier;
static inline void __syncthreads() { pthread_barrier_wait(&barrier); }

#include SOURCE

int main(int count, char **words)
{
    if (count != int(6 + sizeof(Parameters) / sizeof(float)))
        return fprintf(stderr, "the kernel takes another number of values\n"), 2;
    unsigned cols = atoi(words[1]), rows = atoi(words[2]);
    blockDim.x = atoi(words[3]);
    unsigned long long frames = atoll(words[4]);
    double step = atof(words[5]);
    Parameters parameters;
    for (int i = 6; i < count; i++)
        ((float *)&parameters)[i - 6] = strtof(words[i], nullptr);

    size_t size = size_t(cols) * rows;
    unsigned blocks = (size + blockDim.x - 1) / blockDim.x;
    std::vector<float4> vertices;
    pthread_barrier_init(&barrier, nullptr, blockDim.x);
    for (unsigned long long frame = 0; frame < frames; frame++) {
        // A vertex that the kernel does not write stays NaN.
        float none = std::numeric_limits<float>::quiet_NaN();
        vertices.assign(size, {none, none, none, none});
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < blockDim.x; t++)
            threads.emplace_back([&, t] {
                threadIdx.x = t;
                for (unsigned block = 0; block < blocks; block++) {
                    blockIdx.x = block;
                    KERNEL(vertices.data(), cols, rows, frame, frame * step, parameters);
                    // The next block reuses the shared memory, so it waits until this one is done.
                    pthread_barrier_wait(&barrier);
                }
            });
        for (auto &thread : threads)
            thread.join();
    }
    return fwrite(vertices.data(), sizeof(float4), size, stdout) != size;
}
