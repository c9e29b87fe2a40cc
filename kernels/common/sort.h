// SPDX-License-Identifier: Apache-2.0
// Sorting, prefix sums and selection, by CUB. All pointers are the device's.
#pragma once

#include "launch.cuh"

namespace nurec::cuda {

// By the lowest `bits` bits of the keys; stable.
struct Pairs {
    int64_t n;
    uint32_t const* keys;    // [n]
    uint32_t const* values;  // [n]
    uint32_t* sorted_keys;   // [n]
    uint32_t* sorted;        // [n] values
};

void sort_pairs(Pairs const& pairs, int bits, Allocator const& memory, cudaStream_t stream);

// out[i] = in[0] + ... + in[i - 1]
void exclusive_sum(int64_t const* in, int64_t* out, int64_t n, Allocator const& memory, cudaStream_t stream);

// Numbers below n whose flag is not 0, ascending: `index` [n], `count` [1].
void select_flagged(uint8_t const* flags, int64_t n, uint32_t* index, int64_t* count, Allocator const& memory,
                    cudaStream_t stream);

}  // namespace nurec::cuda
