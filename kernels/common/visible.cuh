// SPDX-License-Identifier: Apache-2.0
// A kernel's way through the visible blocks of the store. Their number is known on the device alone. A launch has a
// bounded number of thread blocks, and each goes on until all visible blocks are done. With a thread block for each
// block of the store, most would start only to end: on a drive of many Gaussians they would take longer than the work.
#pragma once

#include "blocks.h"
#include "launch.cuh"

namespace nurec::cuda {

static_assert(THREADS == BLOCK_GAUSSIANS);
constexpr int64_t BLOCKS_PER_MULTIPROCESSOR = 16;  // thread blocks of a bounded launch

// Thread blocks for n Gaussians, where a block of the store has PARTS parts and a thread block takes one at a time.
template <int PARTS = 1>
unsigned blocks_for(VisibleBlocks const& blocks, int64_t n) {
    int64_t const all = PARTS * blocks_of_store(n);
    return unsigned(blocks.listed ? smaller(all, BLOCKS_PER_MULTIPROCESSOR * multiprocessors()) : all);
}

// Calls take(first Gaussian) for each part that falls to this thread block. All its threads call it. The next call may
// overwrite shared memory. LISTED: blocks may be listed; a kernel that needs more registers for the loop has an
// instance without.
template <int PARTS = 1, bool LISTED = true, class Take>
__device__ void for_visible_blocks(VisibleBlocks const& blocks, int64_t n, Take const& take) {
    constexpr int64_t EACH = BLOCK_GAUSSIANS / PARTS;
    if constexpr (!LISTED) {
        int64_t const first = EACH * blockIdx.x;
        if (first < n) take(first);
        return;
    }
    int64_t const parts = PARTS * blocks.count(n);
#pragma unroll 1
    for (int64_t k = blockIdx.x; k < parts; k += gridDim.x) {
        int64_t const first = blocks.first(k / PARTS) + EACH * (k % PARTS);
        if (first < n) take(first);
        __syncthreads();
    }
}

}  // namespace nurec::cuda
