// SPDX-License-Identifier: Apache-2.0
// Blocks of the store with a Gaussian that a view of the step may see: found from stored parameters, before anything
// else is made of them. On CUDA alone.
#pragma once

#include "../common/blocks.h"
#include "../common/cells.h"
#include "../common/device.h"
#include "../math/view_row.cuh"

namespace nurec::cuda {

constexpr int MAX_BLOCK_VIEWS = 16;

struct BlockView {
    ViewRow<float> const* row;
    bool has_lens;        // of a camera: one of math/lens.cuh
    int const* occupied;  // of a lidar: summed-area table of the cells that hold rays (project.h); null: a camera
    Cells cells;          // of a lidar, without rays
};

struct BlockScene {
    int64_t n, still;             // N; the first ones, which do not move
    float const* means;           // [N, 3] metres
    float const* log_scales;      // [N, 3]
    float const* opacity_logits;  // [N] of cameras
    float const* lidar_logits;    // [N] of lidars, `columns` apart; null: they have the opacity of cameras
    float* spheres;               // [blocks, 4] centre and radius in metres; a negative radius: no sphere
    int64_t columns, views;
    BlockView view[MAX_BLOCK_VIEWS];
};

// Flags of blocks are read in vectors, and begin at a multiple of as many bytes.
constexpr int FLAG_VECTOR = 16;

inline int64_t flags_of_store(int64_t n) {  // bytes
    return (blocks_of_store(n) + FLAG_VECTOR - 1) / FLAG_VECTOR * FLAG_VECTOR;
}

// Writes `visible` [flags_of_store(n)], 1 for a visible block. Blocks with Gaussians that move count as visible. A
// block with a sphere is read only if some view may see the sphere. A hidden block gets one.
void mark_visible_blocks(BlockScene const& in, uint8_t* visible, Queue const& queue);

// Writes `listed` [1 + n] as VisibleBlocks has it, of n blocks by their flags. With `spheres` listed blocks lose
// theirs, since the step changes them.
void list_visible_blocks(uint8_t const* visible, int64_t n, int* listed, float* spheres, Queue const& queue);

}  // namespace nurec::cuda
