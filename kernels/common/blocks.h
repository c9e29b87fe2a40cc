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
    int const* listed;  // [1 + blocks] how many they are, then their numbers, ascending; null: all blocks count

    NUREC_FN int64_t count(int64_t n) const { return listed ? listed[0] : blocks_of_store(n); }  // in a store of n
    NUREC_FN int64_t block(int64_t k) const { return listed ? listed[1 + k] : k; }
    NUREC_FN int64_t first(int64_t k) const { return BLOCK_GAUSSIANS * block(k); }  // of the k-th block's Gaussians
};

}  // namespace nurec
