// SPDX-License-Identifier: Apache-2.0
// Counts (ray, Gaussian) pairs, as a GPU's warps would take them: for debugging and benchmarks, one ray after another.
#pragma once

#include "counts.h"
#include "../render/render_cpu.h"

namespace nurec::cpu {

void count_pairs(Inputs const& in, PairCounts* out);  // [A, W] of each tile's warps, W = P / 32 rounded up

}  // namespace nurec::cpu
