// SPDX-License-Identifier: Apache-2.0
// Blocks of consecutive Gaussians of the store. Neighbours in the store are neighbours in space (morton_order), so a
// view of a long drive sees few blocks, and the kernels of a step pass the others by.
#pragma once

#include <cstdint>

#include "../math/vec.cuh"

namespace nurec {

constexpr int64_t BLOCK_GAUSSIANS = 256;

NUREC_FN int64_t blocks_of_store(int64_t n) {
    return (n + BLOCK_GAUSSIANS - 1) / BLOCK_GAUSSIANS;
}

struct VisibleBlocks {
    uint8_t const* at;  // [blocks] 0: no view of the step sees any of its Gaussians; null: all blocks count

    NUREC_FN bool has_block(int64_t k) const { return !at || at[k]; }
    NUREC_FN bool has(int64_t i) const { return has_block(i / BLOCK_GAUSSIANS); }
};

}  // namespace nurec
