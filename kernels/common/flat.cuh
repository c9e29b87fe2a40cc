// SPDX-License-Identifier: Apache-2.0
// Arrays of short rows: a block goes through THREADS of them in the order of the numbers in memory: neighbouring
// threads take neighbouring numbers, of one row or of several.
#pragma once

#include "launch.cuh"

namespace nurec::cuda {

// Index, among the block's numbers, of the k-th number of this thread; ROW numbers are a row.
__device__ inline unsigned number_in_block(int k) {
    return unsigned(k) * THREADS + threadIdx.x;
}

__device__ inline int64_t first_row() {
    return blockIdx.x * int64_t(THREADS);
}

// This thread's numbers of THREADS rows from `first` on; 0 after the last one of n rows.
template <int ROW>
__device__ void load_flat(float const* from, int64_t first, int64_t n, float (&numbers)[ROW]) {
#pragma unroll
    for (int k = 0; k < ROW; ++k) {
        int64_t const at = ROW * first + number_in_block(k);
        numbers[k] = at < ROW * n ? from[at] : 0.f;
    }
}

template <int ROW>
__device__ void store_flat(float* to, int64_t first, int64_t n, float const (&numbers)[ROW]) {
#pragma unroll
    for (int k = 0; k < ROW; ++k) {
        int64_t const at = ROW * first + number_in_block(k);
        if (at < ROW * n) to[at] = numbers[k];
    }
}

}  // namespace nurec::cuda
