// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::count_pairs gives on either device: [A, W, 4], the fields of PairCounts of every warp of every tile.
#pragma once

#include "counts.h"
#include "../render/torch_render.h"

namespace nurec {

inline at::Tensor empty_counts(RenderTensors const& in) {
    auto const warps = (in.rays.size(1) + WARP - 1) / WARP;
    return at::empty({in.rays.size(0), warps, sizeof(PairCounts) / sizeof(int64_t)}, in.rays.options());
}

inline PairCounts* counts_of(at::Tensor const& t) {
    return t.numel() ? reinterpret_cast<PairCounts*>(t.mutable_data_ptr<int64_t>()) : nullptr;
}

}  // namespace nurec
