// SPDX-License-Identifier: Apache-2.0
// Copies of the rows of visible blocks into arrays without the others, and back: several ranks exchange these alone.
// On CUDA alone.
#pragma once

#include "../common/blocks.h"
#include "../common/device.h"

namespace nurec::cuda {

constexpr int MAX_BLOCK_COPIES = 40;

struct BlockCopy {
    float* rows;    // [n, width]
    float* packed;  // [capacity, BLOCK_GAUSSIANS, width]
    int width;
    float factor;  // of packed values
    bool vectors;  // both begin at a multiple of 16 bytes
};

struct BlockCopies {
    int count;
    int64_t n, capacity;  // blocks after as many are left out
    VisibleBlocks blocks;
    BlockCopy copies[MAX_BLOCK_COPIES];
};

// Writes `packed` = factor * rows; rows after the n-th, and places without a block, are not written.
void pack_blocks(BlockCopies const& p, Queue const& queue);

// Writes the rows of the listed blocks; others stay as they are.
void unpack_blocks(BlockCopies const& p, Queue const& queue);

}  // namespace nurec::cuda
