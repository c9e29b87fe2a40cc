// SPDX-License-Identifier: Apache-2.0
// Sorting (radix_sort.cu), prefix sums and selection (by CUB). All pointers are the device's.
#pragma once

#include "blocks.h"
#include "device.h"

namespace nurec::cuda {

constexpr uint32_t UNWANTED = ~uint32_t(0);

// Pairs to sort by `bits` neighbouring bits of the keys; stable. Fewer than 2^30.
struct Pairs {
    int64_t n;
    uint32_t const* keys;            // [n]
    uint32_t const* values;          // [n]; null: the numbers from 0 on
    uint32_t* sorted_keys;           // [n]; null: not needed
    uint32_t* sorted;                // [n] values; null: they go to `wide`
    int64_t const* there = nullptr;  // [1] so many of the n are sorted, from the first on; null: all
    int64_t* kept = nullptr;         // [1] pairs with another key than UNWANTED: the others are left out; null: none is
    int64_t* wide = nullptr;         // [n] the same values
    int lowest = 0;                  // of the bits, if it is not the key's lowest
    VisibleBlocks blocks = {nullptr};  // keys of others are not read; without `values`
};

void sort_pairs(Pairs const& pairs, int bits, Queue const& queue);

// Sorts with zeros that exist already, and takes so many words of them.
void sort_pairs(Pairs const& pairs, int bits, Zeros& zeros, Queue const& queue);
int64_t words_to_sort(int64_t pairs, int bits);

// Returns the bits of numbers below n.
constexpr int bits_for(int64_t n) {
    int bits = 1;
    while ((int64_t(1) << bits) < n) ++bits;
    return bits;
}

// out[i] = in[0] + ... + in[i - 1]
void exclusive_sum(int64_t const* in, int64_t* out, int64_t n, Queue const& queue);

// Numbers below n with a flag that is not 0, ascending: `index` [n], `count` [1].
void select_flagged(uint8_t const* flags, int64_t n, uint32_t* index, int64_t* count, Queue const& queue);

}  // namespace nurec::cuda
