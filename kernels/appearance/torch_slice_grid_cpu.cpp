// SPDX-License-Identifier: Apache-2.0
// nurec_lite::slice_grid on the CPU.
#include <torch/library.h>

#include "torch_slice_grid.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor slice_grid(Tensor const& grid, Tensor const& image) {
    return slice_grid_by(&cpu::slice_grid, grid, image);
}

std::tuple<Tensor, Tensor> slice_grid_backward(Tensor const& grid, Tensor const& image, Tensor const& d_sliced) {
    return grid_gradients_by(&cpu::slice_grid_backward, grid, image, d_sliced);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("slice_grid", &slice_grid);
    m.impl("slice_grid_backward", &slice_grid_backward);
}

}  // namespace nurec
