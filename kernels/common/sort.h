// SPDX-License-Identifier: Apache-2.0
// Sorting, prefix sums and selection, by CUB. All pointers are the device's.
#pragma once

#include "device.h"

namespace nurec::cuda {

// By the lowest `bits` bits of the keys; stable.
struct Pairs {
    int64_t n;
    uint32_t const* keys;    // [n]
    uint32_t const* values;  // [n]
    uint32_t* sorted_keys;   // [n]
    uint32_t* sorted;        // [n] values
};

void sort_pairs(Pairs const& pairs, int bits, Queue const& queue);

// out[i] = in[0] + ... + in[i - 1]
void exclusive_sum(int64_t const* in, int64_t* out, int64_t n, Queue const& queue);

// Numbers below n whose flag is not 0, ascending: `index` [n], `count` [1].
void select_flagged(uint8_t const* flags, int64_t n, uint32_t* index, int64_t* count, Queue const& queue);

}  // namespace nurec::cuda
