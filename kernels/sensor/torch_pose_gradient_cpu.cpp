// SPDX-License-Identifier: Apache-2.0
// nurec_lite::pose_gradient on the CPU.
#include <torch/library.h>

#include "torch_pose_gradient.h"

namespace nurec {
namespace {

at::Tensor pose_gradient(at::Tensor const& centre, at::TensorList placed, at::TensorList grads) {
    return nudge_gradient_by(&cpu::pose_gradient, centre, placed, grads);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("pose_gradient", &pose_gradient);
}

}  // namespace nurec
