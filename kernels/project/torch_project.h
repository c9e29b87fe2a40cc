// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::project takes, on either device.
#pragma once

#include "../common/torch_cells.h"
#include "../common/torch_gaussians.h"
#include "../math/depth.cuh"
#include "params.h"

namespace nurec {

// index, low, high, seen, shapes, count
using Projected = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

inline int checked_depth_bits(int64_t bits) {
    TORCH_CHECK_VALUE(bits == 16 || bits == 24 || bits == DEPTH_BITS, "depth_bits is ", bits,
                      ", but must be 16, 24 or ", DEPTH_BITS);
    return int(bits);
}

inline ProjectParams checked_project(at::TensorList gaussians, at::Tensor const& view, bool is_camera,
                                     at::TensorList grid, int64_t columns) {
    GaussianTensors const g = gaussians_of(gaussians, view);
    check_gaussians(g);
    check_sensor(view, is_camera);
    Cells const cells = is_camera ? Cells{} : cells_of(grid, columns, view.device());
    return {arrays_of(g), &row_of(view)->view, is_camera, cells};
}

}  // namespace nurec
