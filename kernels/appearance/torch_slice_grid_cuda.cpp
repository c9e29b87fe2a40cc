// SPDX-License-Identifier: Apache-2.0
// nurec_lite::slice_grid on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_slice_grid.h"

namespace nurec {
namespace {

using at::Tensor;

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

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("slice_grid", &slice_grid);
    m.impl("slice_grid_backward", &slice_grid_backward);
}

}  // namespace nurec
