// SPDX-License-Identifier: Apache-2.0
// The digits by which keys are sorted (radix_sort.cu), and how many keys have each: whoever writes keys can count them.
#pragma once

#include "launch.cuh"

namespace nurec::cuda {

constexpr int BITS = 8, DIGITS = 1 << BITS;  // of a pass
constexpr int MOST_PASSES = 4;

struct Digits {
    int first, bits;  // the lowest bit

    __device__ uint32_t of(uint32_t key) const { return key >> first & ((1u << bits) - 1); }
};

// `bits` of a key, in passes of nearly equal ones.
struct Passes {
    int bits, n, each;

    __host__ __device__ Digits of(int pass) const {
        int const first = pass * each, left = bits - first;
        return {first, left < each ? left : each};
    }
};

constexpr Passes passes_of(int bits) {
    int const n = bits > BITS ? (bits + BITS - 1) / BITS : 1;
    return {bits, n, (bits + n - 1) / n};
}

// A block's keys with each digit of each pass, in its shared memory.
using DigitCounts = uint32_t[MOST_PASSES][DIGITS];

__device__ inline void count_digits_of(DigitCounts& counts, Passes const& passes, uint32_t key) {
    for (int pass = 0; pass < passes.n; ++pass) atomicAdd(&counts[pass][passes.of(pass).of(key)], 1u);
}

// Both by a block together. totals [passes, DIGITS].
__device__ inline void begin_counting(DigitCounts& counts, Passes const& passes) {
    for (int k = int(threadIdx.x); k < passes.n * DIGITS; k += THREADS) counts[k / DIGITS][k % DIGITS] = 0;
    __syncthreads();
}

__device__ inline void end_counting(DigitCounts const& counts, Passes const& passes, uint32_t* totals) {
    __syncthreads();
    for (int k = int(threadIdx.x); k < passes.n * DIGITS; k += THREADS)
        if (uint32_t const n = counts[k / DIGITS][k % DIGITS]) atomicAdd(totals + k, n);
}

}  // namespace nurec::cuda
