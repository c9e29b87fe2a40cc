// SPDX-License-Identifier: Apache-2.0
// Checks of the operators that list warp tiles.
#pragma once

#include "../common/torch_cells.h"
#include "../common/torch_check.h"
#include "../math/depth.cuh"
#include "warp_tiles.h"

namespace nurec {

inline void check_tile_count(int64_t n, bool is_camera) {
    int64_t const most = MAX_LISTS / lists_per_tile(is_camera);
    TORCH_CHECK_VALUE(n <= most, "there are ", n, " warp tiles, but must be at most ", most,
                      ": give fewer views, or views of fewer rays");
}

inline int checked_depth_bits(int64_t bits) {
    TORCH_CHECK_VALUE(bits == 16 || bits == 24 || bits == DEPTH_BITS, "depth_bits is ", bits,
                      ", but must be 16, 24 or ", DEPTH_BITS);
    return int(bits);
}

// Warp tiles of a lidar: first, bins and heights, and the grid of its bands. The caller fills in their number and
// rays.
inline WarpTiles sweep_tiles_of(at::Tensor const& first, at::Tensor const& bins, at::Tensor const& heights,
                                at::TensorList grid) {
    auto const device = first.device();
    WarpTiles b = {};
    b.cells = cells_of(grid, 1, device);
    check_tensor(first, "warp_tiles.first", at::kInt, {b.cells.bands + 1}, device);
    check_tensor(bins, "warp_tiles.bins", at::kInt, {b.cells.bands, AZIMUTH_BINS, 2}, device);
    check_tensor(heights, "warp_tiles.heights", at::kFloat, {b.cells.bands, 2}, device);
    b.first = first.const_data_ptr<int>(), b.bins = bins.const_data_ptr<int>();
    b.heights = heights.const_data_ptr<float>();
    return b;
}

constexpr int64_t CANDIDATE_FLOATS = sizeof(cuda::Candidates) / sizeof(float);

}  // namespace nurec
