// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::project takes, on either device.
#pragma once

#include "torch_warp_tiles.h"
#include "../common/torch_cells.h"
#include "../common/torch_gaussians.h"
#include "../math/depth.cuh"
#include "project.h"

namespace nurec {

// index, low, high, seen, shapes, count, candidates, counts
using Projected =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

inline int checked_depth_bits(int64_t bits) {
    TORCH_CHECK_VALUE(bits == 16 || bits == 24 || bits == DEPTH_BITS, "depth_bits is ", bits,
                      ", but must be 16, 24 or ", DEPTH_BITS);
    return int(bits);
}

// features: of a lidar whose shapes are asked for.
inline ProjectParams checked_project(at::TensorList gaussians, at::Tensor const& view, bool is_camera,
                                     at::TensorList grid, int64_t columns,
                                     std::optional<at::Tensor> const& features = {}) {
    GaussianTensors const g = gaussians_of(gaussians, view);
    check_gaussians(g);
    check_sensor(view, is_camera);
    Cells const cells = is_camera ? Cells{} : cells_of(grid, columns, view.device());
    if (features) check_tensor(*features, "features", at::kFloat, {g.scales.size(0), 2}, view.device());
    ViewRow<float> const& row = *row_of(view);
    return {arrays_of(g), &row.view, is_camera,
            cells,        &row.path, features ? features->const_data_ptr<float>() : nullptr};
}

}  // namespace nurec
