// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::slice_grid and ::slice_grid_backward: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "../common/torch_check.h"
#include "slice_grid.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

constexpr int64_t MAX_CELLS = 1 << 10;  // along an axis of a grid

GridImage checked_grid(at::Tensor const& grid, at::Tensor const& image) {
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

using at::Tensor;

#ifdef NUREC_CUDA

Tensor slice_grid(Tensor const& grid, Tensor const& image) {
    Site site(image.device());
    auto const launch = [&](GridImage const& in, float* sliced) {
        cuda::slice_grid(in, sliced, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return slice_grid_by(launch, grid, image);
}

std::tuple<Tensor, Tensor> slice_grid_backward(Tensor const& grid, Tensor const& image, Tensor const& d_sliced) {
    Site site(image.device());
    auto const launch = [&](GridImage const& in, GridGrads const& d) {
        cuda::slice_grid_backward(in, d, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return grid_gradients_by(launch, grid, image, d_sliced);
}

#else

Tensor slice_grid(Tensor const& grid, Tensor const& image) {
    return slice_grid_by(&cpu::slice_grid, grid, image);
}

std::tuple<Tensor, Tensor> slice_grid_backward(Tensor const& grid, Tensor const& image, Tensor const& d_sliced) {
    return grid_gradients_by(&cpu::slice_grid_backward, grid, image, d_sliced);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("slice_grid", &slice_grid);
    m.impl("slice_grid_backward", &slice_grid_backward);
}

}  // namespace nurec
