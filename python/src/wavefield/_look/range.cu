// Finds the smallest and the largest finite numbers of an array of any type, in one pass.
//
//   data         rows * cols < 2^31 elements of `components` numbers each; element (row, col) begins
//                at row * row_stride + col * col_stride bytes, and its numbers are `step` bytes apart
//   type         'f', 'i' or 'u', times 256, plus the size of a number in bytes
//   value        if each element is a place, x y z: which of its numbers is the value. It counts
//                only if all three are finite. Otherwise `components`: all numbers are values
//   found        room for nine words, 0 before and after the launch
//   host         eight words in the CPU's memory for the keys of x, y, z and the value: of each the
//                largest ~key and the largest key, or 0, which no finite float has. And a ninth, set
//                to 1 after these
//
// The launch is one-dimensional, in blocks of 256.
//
// After a change, `scripts/kernels.sh build` makes range.ptx.

typedef unsigned long long u64;

constexpr unsigned THREADS = 256, KEYS = 8;

// The key of a number: larger numbers have larger keys. False for NaN and infinity.
static __device__ bool key_of(const char *at, unsigned type, u64 *key)
{
    constexpr u64 SIGN = 1ull << 63;
    double number;
    switch (type) {
    case 'u' * 256 + 1: *key = *(const unsigned char *)at; return true;
    case 'u' * 256 + 4: *key = *(const unsigned *)at; return true;
    case 'u' * 256 + 8: *key = *(const u64 *)at; return true;
    case 'i' * 256 + 4: *key = SIGN ^ (u64)(long long)*(const int *)at; return true;
    case 'i' * 256 + 8: *key = SIGN ^ *(const u64 *)at; return true;
    case 'f' * 256 + 2: {
        float single;
        asm("cvt.f32.f16 %0, %1;" : "=f"(single) : "h"(*(const unsigned short *)at));
        number = single;
        break;
    }
    case 'f' * 256 + 4: number = *(const float *)at; break;
    default: number = *(const double *)at;
    }
    u64 bits = __builtin_bit_cast(u64, number);
    *key = bits & SIGN ? ~bits : bits ^ SIGN;
    return (bits & ~SIGN) < 0x7ff0000000000000;
}

static __device__ void add(u64 *pair, u64 key)
{
    pair[0] = max(pair[0], ~key);
    pair[1] = max(pair[1], key);
}

extern "C" __global__ void range(const char *data, unsigned rows, unsigned cols, long long row_stride, long long col_stride,
                                 long long step, unsigned components, unsigned value, unsigned type, u64 *found, volatile u64 *host)
{
    u64 mine[KEYS] = {};
    bool places = value < components;
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < rows * cols; i += gridDim.x * THREADS) {
        const char *at = data + i / cols * row_stride + i % cols * col_stride;
        u64 keys[4];
        bool finite[4];
        for (unsigned c = 0; c < 4; c++) {
            finite[c] = c < components && key_of(at + c * step, type, &keys[c]);
            if (finite[c] && !places)
                add(&mine[6], keys[c]);
        }
        if (places && finite[0] && finite[1] && finite[2]) {
            for (unsigned c = 0; c < 4; c++) {
                if (c < 3)
                    add(&mine[2 * c], keys[c]);
                if (c == value && finite[c])
                    add(&mine[6], keys[c]);
            }
        }
    }

    // The threads of a block agree first, because 64-bit atomics on one address take turns.
    __shared__ u64 best[THREADS][KEYS];
    for (unsigned k = 0; k < KEYS; k++)
        best[threadIdx.x][k] = mine[k];
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            for (unsigned k = 0; k < KEYS; k++)
                best[threadIdx.x][k] = max(best[threadIdx.x][k], best[threadIdx.x + half][k]);
    }
    __syncthreads();
    if (threadIdx.x < KEYS) {
        atomicMax(&found[threadIdx.x], best[0][threadIdx.x]);
        __threadfence();
    }

    // The last block to come here tells the CPU. (Without volatile, clang 14 reads it before the barrier.)
    __shared__ volatile bool last;
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(&found[KEYS], 1) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x < KEYS) {
        host[threadIdx.x] = *(volatile u64 *)&found[threadIdx.x];
        found[threadIdx.x] = 0;
        __threadfence_system();
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        found[KEYS] = 0;
        host[KEYS] = 1;
    }
}
