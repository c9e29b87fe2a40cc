// SPDX-License-Identifier: Apache-2.0
// Counts (ray, Gaussian) pairs in the loop of renderForward: for debugging and benchmarks.
#pragma once

#include "counts.h"
#include "../render/params.h"

namespace nurec::cuda {

void count_pairs(RenderParams const& p, PairCounts* out, cudaStream_t stream);  // [A, W] of each tile's warps

}  // namespace nurec::cuda
