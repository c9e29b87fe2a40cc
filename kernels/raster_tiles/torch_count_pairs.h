// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::count_pairs gives on either device: [A, W, 4], the fields of PairCounts of every warp of every tile.
#pragma once

#include <ATen/ops/empty.h>

#include <cstddef>

#include "../project/torch_render.h"
#include "count_pairs.h"

namespace nurec {

static_assert(offsetof(PairCounts, gaussians) == 0 && offsetof(PairCounts, open) == 1 * sizeof(int64_t));
static_assert(offsetof(PairCounts, contributing) == 2 * sizeof(int64_t));
static_assert(offsetof(PairCounts, useful) == 3 * sizeof(int64_t) && sizeof(PairCounts) == 4 * sizeof(int64_t));

inline at::Tensor empty_counts(RenderTensors const& in) {
    auto const warps = (in.rays.size(1) + WARP - 1) / WARP;
    return at::empty({in.rays.size(0), warps, sizeof(PairCounts) / sizeof(int64_t)}, in.rays.options());
}

inline PairCounts* counts_of(at::Tensor const& t) {
    return t.numel() ? reinterpret_cast<PairCounts*>(t.mutable_data_ptr<int64_t>()) : nullptr;
}

}  // namespace nurec
