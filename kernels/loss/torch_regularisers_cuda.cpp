// SPDX-License-Identifier: Apache-2.0
// nurec_lite::regularisers on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_regularisers.h"

namespace nurec {
namespace {

using at::Tensor;

ThreeTensors regularisers(Tensor const& opacities, MaybeTensor const& lidar_opacities, Tensor const& scales) {
    Site site(opacities.device());
    auto const launch = [&](RegularisedGaussians const& in, Terms const& out) {
        cuda::regularisers(in, out, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return regularisers_by(launch, opacities, lidar_opacities, scales);
}

ThreeTensors regularisers_backward(Tensor const& opacities, MaybeTensor const& lidar_opacities, Tensor const& scales,
                                   MaybeTensor const& d_opacity, MaybeTensor const& d_scale, MaybeTensor const& d_tie) {
    Site site(opacities.device());
    auto const launch = [&](RegularisedGaussians const& in, TermGrads const& d) {
        cuda::regularisers_backward(in, d, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return regularisers_gradients_by(launch, opacities, lidar_opacities, scales, d_opacity, d_scale, d_tie);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("regularisers", &regularisers);
    m.impl("regularisers_backward", &regularisers_backward);
}

}  // namespace nurec
