// SPDX-License-Identifier: Apache-2.0
// Counts (ray, Gaussian) pairs as the warps of a GPU take them in blending: 32 rays of a tile that take every Gaussian
// of its list together, until all of them are closed. For debugging and benchmarks.
#pragma once

#include "render.h"

namespace nurec {

constexpr int WARP = 32;

struct PairCounts {
    int64_t gaussians;     // that the warp goes through; WARP times as many lanes are busy with them
    int64_t open;          // (ray, Gaussian) pairs of open rays among these
    int64_t contributing;  // of a weight above 0
    int64_t useful;        // Gaussians with a contributing pair: the backward pass adds up as many rows over the warp
};

// [A, W] of each tile's warps, W = P / 32 rounded up.
namespace cpu {

void count_pairs(RenderParams const& p, PairCounts* out);

}  // namespace cpu

namespace cuda {

void count_pairs(RenderParams const& p, PairCounts* out, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
