// SPDX-License-Identifier: Apache-2.0
// Entries of tiles' lists, from the order of writing to lists side by side. All pointers are the
// device's. Letters: A tiles, L entries.
#pragma once

#include "../common/device.h"

namespace nurec::cuda {

struct Written {
    uint32_t* tiles;      // [L] number of the list
    uint32_t* gaussians;  // [L]
    int64_t const* n;     // [1] so many are written, or would be with enough capacity
};

// Entries with a capacity; the device will know their number.
Written entries_with_capacity(int64_t entries, int64_t const* n, Queue const& queue);

struct Entries {
    int64_t capacity;    // L: where it is too small, some entries are left out, and where it is too large, zeros
                         // follow, which no offset covers
    int64_t* offsets;    // [A + 1]
    int64_t* gaussians;  // [L]
};

// Stable: within a list, entries keep the order of writing.
void sort_into_lists(Written const& written, int64_t n_tiles, Entries const& out, Queue const& queue);

}  // namespace nurec::cuda
