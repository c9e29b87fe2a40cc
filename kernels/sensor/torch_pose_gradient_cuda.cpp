// SPDX-License-Identifier: Apache-2.0
// nurec_lite::pose_gradient on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_pose_gradient.h"

namespace nurec {
namespace {

at::Tensor pose_gradient(at::Tensor const& centre, at::TensorList placed, at::TensorList grads) {
    Site site(centre.device());
    auto const launch = [&](NudgedGaussians const& in, float* gradient) {
        cuda::pose_gradient(in, gradient, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return nudge_gradient_by(launch, centre, placed, grads);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("pose_gradient", &pose_gradient);
}

}  // namespace nurec
