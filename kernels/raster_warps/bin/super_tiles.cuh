// SPDX-License-Identifier: Apache-2.0
// Entries of super-tiles, and lists made of them.
#pragma once

#include "../../project/warp_tiles.h"

namespace nurec::cuda {

// An entry: a super-tile, and which of its lists a Gaussian enters, the first list's bit lowest: super-tile << 16 |
// bits.
struct SuperTileEntries {
    uint32_t* lists;      // [capacity]
    uint32_t* gaussians;  // [capacity]
    Counts const* counts;
    int64_t capacity;

    __device__ int64_t n() const { return counts->entries < capacity ? counts->entries : capacity; }
};

// Makes lists of entries. Stable: within a list, Gaussians keep the order of the entries.
void make_lists(SuperTileEntries const& entries, WarpTiles const& warp_tiles, ListEntries const& out, int64_t* needed,
                Zeros& zeros, Queue const& queue);
int64_t zeros_to_list(WarpTiles const& warp_tiles, int64_t capacity);  // that make_lists takes

}  // namespace nurec::cuda
