// SPDX-License-Identifier: Apache-2.0
// Rows of two or three numbers, rows of four that begin at a multiple of 16 bytes, and structs of more.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../math/vec.cuh"

namespace nurec::cuda {

// In one go, where rows begin at multiples of 8 bytes, as nearly all do.
__device__ inline Vec2<float> load2(float const* a, int64_t i) {
    if (reinterpret_cast<uintptr_t>(a) % sizeof(float2) != 0) return {a[2 * i], a[2 * i + 1]};
    float2 const v = reinterpret_cast<float2 const*>(a)[i];
    return {v.x, v.y};
}

__device__ inline Vec3<float> load3(float const* a, int64_t i) {
    return {a[3 * i], a[3 * i + 1], a[3 * i + 2]};
}

__device__ inline void store3(float* a, int64_t i, Vec3<float> v) {
    a[3 * i] = v.x, a[3 * i + 1] = v.y, a[3 * i + 2] = v.z;
}

__device__ inline bool is_some(Vec3<float> a) {
    return a.x != 0 || a.y != 0 || a.z != 0;
}

// Stores the rows of a warp's lanes, side by side from row 32 k: 16 bytes a lane instead of 4 three times.
__device__ inline void store3_together(float* a, int64_t i, int64_t n, Vec3<float> v, float4 (&staged)[24]) {
    int const lane = int(threadIdx.x % 32);
    int64_t const first = i - lane;
    __syncwarp();
    store3(reinterpret_cast<float*>(staged), lane, v);
    __syncwarp();
    if (first + 32 <= n) {
        if (lane < 24) reinterpret_cast<float4*>(a + 3 * first)[lane] = staged[lane];
    } else if (i < n) {
        store3(a, i, v);
    }
}

__device__ inline Quat<float> load4(float const* a, int64_t i) {
    float4 const q = reinterpret_cast<float4 const*>(a)[i];
    return {q.x, q.y, q.z, q.w};
}

__device__ inline void store4(float* a, int64_t i, Quat<float> q) {
    reinterpret_cast<float4*>(a)[i] = make_float4(q.w, q.x, q.y, q.z);
}

// A struct of floats from memory to shared memory, by the threads of a block together; __syncthreads() comes after.
template <class T>
__device__ void copy_numbers(T& to, T const* from) {
    static_assert(sizeof(T) % sizeof(float) == 0);
    for (unsigned k = threadIdx.x; k < sizeof(T) / sizeof(float); k += blockDim.x)
        reinterpret_cast<float*>(&to)[k] = reinterpret_cast<float const*>(from)[k];
}

}  // namespace nurec::cuda
