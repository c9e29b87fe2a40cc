// SPDX-License-Identifier: Apache-2.0
// nurec_lite::nudge_gradient on the CPU.
#include <torch/library.h>

#include "torch_nudge_gradient.h"

namespace nurec {
namespace {

at::Tensor nudge_gradient(at::Tensor const& centre, at::TensorList placed, at::TensorList grads) {
    return nudge_gradient_by(&cpu::nudge_gradient, centre, placed, grads);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("nudge_gradient", &nudge_gradient);
}

}  // namespace nurec
