// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::slice_grid and ::slice_grid_backward take and give, on either device.
#pragma once

#include <ATen/ops/empty_like.h>

#include <tuple>

#include "../common/torch_check.h"
#include "slice_grid.h"

namespace nurec {

constexpr int64_t MAX_CELLS = 1 << 10;  // along an axis of a grid

inline GridImage checked_grid(at::Tensor const& grid, at::Tensor const& image) {
    auto const device = image.device();
    check_tensor(image, "image", at::kFloat, {-1, -1, 3}, device);
    check_tensor(grid, "grid", at::kFloat, {GRID_NUMBERS, -1, -1, -1}, device);
    for (int axis = 1; axis < 4; ++axis) check_count(grid.size(axis), "size of grid", MAX_CELLS);
    check_image(image.size(1), image.size(0), 1);
    GridShape const shape = {int(grid.size(3)), int(grid.size(2)), int(grid.size(1))};
    return {int(image.size(0)), int(image.size(1)), shape, grid.const_data_ptr<float>(), image.const_data_ptr<float>()};
}

// `forward` and `backward` are the device's drivers.
template <class Forward>
at::Tensor slice_grid_by(Forward const& forward, at::Tensor const& grid, at::Tensor const& image) {
    GridImage const in = checked_grid(grid, image);
    at::Tensor sliced = at::empty_like(image);
    forward(in, sliced.mutable_data_ptr<float>());
    return sliced;
}

template <class Backward>
std::tuple<at::Tensor, at::Tensor> grid_gradients_by(Backward const& backward, at::Tensor const& grid,
                                                     at::Tensor const& image, at::Tensor const& d_sliced) {
    GridImage const in = checked_grid(grid, image);
    check_tensor(d_sliced, "d_sliced", at::kFloat, {in.height, in.width, 3}, image.device());
    at::Tensor d_grid = at::empty_like(grid), d_image = at::empty_like(image);
    backward(in, GridGrads{d_sliced.const_data_ptr<float>(), d_grid.mutable_data_ptr<float>(),
                           d_image.mutable_data_ptr<float>()});
    return {d_grid, d_image};
}

}  // namespace nurec
