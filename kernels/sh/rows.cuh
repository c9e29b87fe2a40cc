// SPDX-License-Identifier: Apache-2.0
// The coefficients of a block's Gaussians, one thread each. They go through shared memory, whole rows of 128 bytes at a
// time: threads that each read and wrote their own 192 bytes took five times as long.
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "params.h"

namespace nurec::cuda {

constexpr int GAUSSIANS = 128;  // of a block

template <int S>
struct Rows {
    static constexpr int LENGTH = 3 * S, STRIDE = LENGTH | 1;  // odd: no two threads read from one bank
    float numbers[GAUSSIANS * STRIDE];

    __device__ float* mine() { return numbers + STRIDE * threadIdx.x; }

    // Calls function(row, number, its place here) for the block's rows of one of the arrays, consecutive numbers by
    // consecutive threads: columns from `begin` on, COUNT of them.
    template <int COUNT, class T, class Function>
    __device__ void for_columns(T* numbers_of, int stride, int rows, int begin, Function const& function) {
        for (int k = int(threadIdx.x); k < COUNT * rows; k += GAUSSIANS) {
            int const row = k / COUNT, column = k % COUNT;
            function(row, numbers_of[stride * row + column], numbers[STRIDE * row + begin + column]);
        }
    }

    template <class T, class Function>
    __device__ void for_each(Coefficients<T> const& sh, int64_t n, Function const& function) {
        int64_t const first = blockIdx.x * int64_t(GAUSSIANS), left = n - first;
        int const rows = int(left < GAUSSIANS ? left : GAUSSIANS);
        for_columns<3>(sh.first + sh.first_stride * first, int(sh.first_stride), rows, 0, function);
        if constexpr (S > 1)
            for_columns<LENGTH - 3>(sh.rest + sh.rest_stride * first, int(sh.rest_stride), rows, 3, function);
    }

    // Of the rows for which wanted(row) holds. All copies of a thread are on their way at once, and in no register.
    template <class Wanted>
    __device__ void read(Coefficients<float const> const& sh, int64_t n, Wanted const& wanted) {
        for_each(sh, n, [&](int row, float const& coefficient, float& place) {
            if (wanted(row)) __pipeline_memcpy_async(&place, &coefficient, sizeof(float));
        });
        __pipeline_commit();
        __pipeline_wait_prior(0);
    }

    __device__ void read(Coefficients<float const> const& sh, int64_t n) {
        read(sh, n, [](int) { return true; });
    }

    __device__ void write(Coefficients<float> const& sh, int64_t n) {
        for_each(sh, n, [](int, float& number, float const& place) { number = place; });
    }
};

inline unsigned blocks_of(int64_t n) {
    return static_cast<unsigned>((n + GAUSSIANS - 1) / GAUSSIANS);
}

}  // namespace nurec::cuda
