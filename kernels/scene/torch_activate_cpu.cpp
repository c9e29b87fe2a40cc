// SPDX-License-Identifier: Apache-2.0
// nurec_lite::activate on the CPU.
#include <torch/library.h>

#include "torch_activate.h"

namespace nurec {
namespace {

using at::Tensor;

FiveTensors activate(Tensor const& quats, Tensor const& log_scales, Tensor const& opacity_logits,
                     Tensor const& lidar_logits) {
    return activate_by(&cpu::activate, quats, log_scales, opacity_logits, lidar_logits);
}

FourTensors activate_backward(Tensor const& quats, Tensor const& scales, Tensor const& opacities, Tensor const& lidar,
                              Tensor const& lidar_opacities, int64_t columns, MaybeTensor const& d_unit,
                              MaybeTensor const& d_scales, MaybeTensor const& d_opacities, MaybeTensor const& d_lidar,
                              MaybeTensor const& d_lidar_opacities) {
    return activate_gradients_by(&cpu::activate_backward, {quats, scales, opacities, lidar, lidar_opacities},
                                 {d_unit, d_scales, d_opacities, d_lidar, d_lidar_opacities}, columns);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("activate", &activate);
    m.impl("activate_backward", &activate_backward);
}

}  // namespace nurec
