// SPDX-License-Identifier: Apache-2.0
// The coefficients of a block's Gaussians, one thread each. They go through shared memory in vectors of 16 bytes, as
// they lie in memory: threads that each read and wrote their own 192 bytes took five times as long.
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "sh.h"

namespace nurec::cuda {

constexpr int GAUSSIANS = 128;  // of a block

// COUNT numbers of each of a block's Gaussians. Where COUNT is odd, no two threads read from one bank.
template <int COUNT>
struct Columns {
    alignas(16) float numbers[COUNT > 0 ? GAUSSIANS * COUNT : 1];

    static __device__ void copy(float& to, float const& from) { __pipeline_memcpy_async(&to, &from, sizeof(float)); }
    static __device__ void copy(float4& to, float4 const& from) { __pipeline_memcpy_async(&to, &from, sizeof(float4)); }

    // Reads those of `rows` rows, `stride` numbers apart, that satisfy wanted(row).
    template <class Wanted>
    __device__ void read(float const* from, int64_t stride, int rows, Wanted const& wanted) {
        bool const side_by_side = stride == COUNT && reinterpret_cast<uintptr_t>(from) % sizeof(float4) == 0;
        int const n = COUNT * rows, vectors = side_by_side ? n / 4 : 0;
        for (int k = int(threadIdx.x); k < vectors; k += GAUSSIANS)
            if (wanted(4 * k / COUNT) || wanted((4 * k + 3) / COUNT))
                copy(reinterpret_cast<float4*>(numbers)[k], reinterpret_cast<float4 const*>(from)[k]);
        for (int k = 4 * vectors + int(threadIdx.x); k < n; k += GAUSSIANS)
            if (wanted(k / COUNT)) copy(numbers[k], from[stride * (k / COUNT) + k % COUNT]);
    }

    __device__ void write(float* to, int64_t stride, int rows) const {
        for (int k = int(threadIdx.x); k < COUNT * rows; k += GAUSSIANS)
            to[stride * (k / COUNT) + k % COUNT] = numbers[k];
    }
};

// Rows of all coefficients: the three numbers of the first, and the others.
template <int S>
struct Rows {
    static constexpr int REST = 3 * S - 3;
    Columns<3> first;
    Columns<REST> rest;

    // A thread's own 3 S numbers.
    struct Mine {
        float *first, *rest;
        __device__ float& operator[](int c) const { return c < 3 ? first[c] : rest[c - 3]; }
    };

    __device__ Mine mine() {
        return {first.numbers + 3 * threadIdx.x, rest.numbers + (REST > 0 ? REST * threadIdx.x : 0)};
    }

    static __device__ int rows_from(int64_t begin, int64_t n) {
        int64_t const left = n - begin;
        return int(left < GAUSSIANS ? left : GAUSSIANS);
    }

    // Reads the rows from `begin` on that satisfy wanted(row). All copies of a thread are under way at once, and in no
    // register.
    template <class Wanted>
    __device__ void read(Coefficients<float const> const& sh, int64_t begin, int64_t n, Wanted const& wanted) {
        int const count = rows_from(begin, n);
        first.read(sh.first + sh.first_stride * begin, sh.first_stride, count, wanted);
        if constexpr (REST > 0) rest.read(sh.rest + sh.rest_stride * begin, sh.rest_stride, count, wanted);
        __pipeline_commit();
        __pipeline_wait_prior(0);
    }

    __device__ void read(Coefficients<float const> const& sh, int64_t n) {
        read(sh, blockIdx.x * int64_t(GAUSSIANS), n, [](int) { return true; });
    }

    __device__ void write(Coefficients<float> const& sh, int64_t n) const {
        int64_t const begin = blockIdx.x * int64_t(GAUSSIANS);
        int const count = rows_from(begin, n);
        first.write(sh.first + sh.first_stride * begin, sh.first_stride, count);
        if constexpr (REST > 0) rest.write(sh.rest + sh.rest_stride * begin, sh.rest_stride, count);
    }
};

inline unsigned blocks_of(int64_t n) {
    return static_cast<unsigned>((n + GAUSSIANS - 1) / GAUSSIANS);
}

}  // namespace nurec::cuda
