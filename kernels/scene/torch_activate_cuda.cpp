// SPDX-License-Identifier: Apache-2.0
// nurec_lite::activate on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_activate.h"

namespace nurec {
namespace {

using at::Tensor;

FiveTensors activate(Tensor const& quats, Tensor const& log_scales, Tensor const& opacity_logits,
                     Tensor const& lidar_logits) {
    Site site(quats.device());
    auto const launch = [&](StoredGaussians const& in, Activations const& out) {
        cuda::activate(in, out, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return activate_by(launch, quats, log_scales, opacity_logits, lidar_logits);
}

FourTensors activate_backward(Tensor const& quats, Tensor const& scales, Tensor const& opacities, Tensor const& lidar,
                              Tensor const& lidar_opacities, int64_t columns, MaybeTensor const& d_unit,
                              MaybeTensor const& d_scales, MaybeTensor const& d_opacities, MaybeTensor const& d_lidar,
                              MaybeTensor const& d_lidar_opacities) {
    Site site(quats.device());
    auto const launch = [&](ActivationGrads const& in, StoredGrads const& out) {
        cuda::activate_backward(in, out, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return activate_gradients_by(launch, {quats, scales, opacities, lidar, lidar_opacities},
                                 {d_unit, d_scales, d_opacities, d_lidar, d_lidar_opacities}, columns);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("activate", &activate);
    m.impl("activate_backward", &activate_backward);
}

}  // namespace nurec
