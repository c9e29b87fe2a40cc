// SPDX-License-Identifier: Apache-2.0
// nurec_lite::regularisers on the CPU.
#include <torch/library.h>

#include "torch_regularisers.h"

namespace nurec {
namespace {

using at::Tensor;

ThreeTensors regularisers(Tensor const& opacities, MaybeTensor const& lidar_opacities, Tensor const& scales) {
    return regularisers_by(&cpu::regularisers, opacities, lidar_opacities, scales);
}

ThreeTensors regularisers_backward(Tensor const& opacities, MaybeTensor const& lidar_opacities, Tensor const& scales,
                                   MaybeTensor const& d_opacity, MaybeTensor const& d_scale, MaybeTensor const& d_tie) {
    return regularisers_gradients_by(&cpu::regularisers_backward, opacities, lidar_opacities, scales, d_opacity,
                                     d_scale, d_tie);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("regularisers", &regularisers);
    m.impl("regularisers_backward", &regularisers_backward);
}

}  // namespace nurec
