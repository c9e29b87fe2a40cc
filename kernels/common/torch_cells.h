// SPDX-License-Identifier: Apache-2.0
// The grid over a lidar's sphere, with the directions of its rays; and bounds of Gaussians, which lists are made of.
#pragma once

#include "cells.h"
#include "torch_check.h"

namespace nurec {

// The tensors of nurec_lite.native.operators.shared.Grid.
inline Cells cells_of(at::TensorList grid, int64_t columns, at::Device device) {
    check_group(grid, "grid", 2, "directions, edges");
    at::Tensor const &directions = grid[0], &edges = grid[1];
    check_tensor(directions, "directions", at::kFloat, {-1, 3}, device);
    check_tensor(edges, "edges", at::kFloat, {-1}, device);
    check_count(columns, "columns", MAX_SIDE);
    check_finite(directions, "directions");
    check_finite(edges, "edges");
    check_ascends<float>(edges, "edges");
    return {edges.const_data_ptr<float>(), edges.size(0) + 1, columns, directions.const_data_ptr<float>(),
            directions.size(0)};
}

}  // namespace nurec
