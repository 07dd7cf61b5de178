// The parts of CUDA's own headers that the kernels here use, so that clang can compile
// them without a CUDA toolkit. scripts/kernels.sh passes this file with -include. nvcc
// and NVRTC define these names themselves and must not see it.
#pragma once

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))

// threadIdx, blockIdx, blockDim and gridDim. This header is part of clang.
#include <__clang_cuda_builtin_vars.h>

// The alignment allows a single 16-byte store.
struct __attribute__((aligned(16))) float4 { float x, y, z, w; };

static inline __device__ float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

static inline __device__ unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline __device__ double min(double a, double b) { return a < b ? a : b; }
static inline __device__ unsigned long long max(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
static inline __device__ unsigned long long atomicMax(unsigned long long *at, unsigned long long a)
{
    return __nvvm_atom_max_gen_ull(at, a);
}
static inline __device__ unsigned long long atomicAdd(unsigned long long *at, unsigned long long a)
{
    return __nvvm_atom_add_gen_ll((long long *)at, a);
}
static inline __device__ void __threadfence() { __nvvm_membar_gl(); }
static inline __device__ void __threadfence_system() { __nvvm_membar_sys(); }

// Each is at most one PTX instruction per result, the same that nvcc chooses by default.
static inline __device__ float __sinf(float a) { return __nvvm_sin_approx_f(a); }
static inline __device__ void __sincosf(float a, float *sine, float *cosine)
{
    *sine = __nvvm_sin_approx_f(a);
    *cosine = __nvvm_cos_approx_f(a);
}
static inline __device__ float __fdividef(float a, float b) { return __nvvm_div_approx_f(a, b); }
static inline __device__ float sqrtf(float a) { return __nvvm_sqrt_rn_f(a); }
static inline __device__ float rintf(float a) { return __builtin_rintf(a); }
static inline __device__ float rsqrtf(float a) { return __nvvm_rsqrt_approx_f(a); }
static inline __device__ unsigned __float_as_uint(float a) { return __builtin_bit_cast(unsigned, a); }
static inline __device__ float __uint_as_float(unsigned a) { return __builtin_bit_cast(float, a); }
static inline __device__ double floor(double a) { return __builtin_floor(a); }
