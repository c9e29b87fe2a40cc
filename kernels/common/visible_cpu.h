// SPDX-License-Identifier: Apache-2.0
// The way of drivers on the CPU through the visible blocks of the store.
#pragma once

#include "blocks.h"

namespace nurec::cpu {

// Calls take(i) for each Gaussian of the visible blocks of n, on all threads.
template <class Take>
void for_visible_gaussians(VisibleBlocks const& blocks, int64_t n, Take const& take) {
    int64_t const count = blocks.count(n);
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < count; ++k)
        for (int64_t i = blocks.first(k); i < smaller(blocks.first(k) + BLOCK_GAUSSIANS, n); ++i) take(i);
}

}  // namespace nurec::cpu
