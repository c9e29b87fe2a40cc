// SPDX-License-Identifier: Apache-2.0
// nurec_lite::adam on the CPU.
#include <torch/library.h>

#include "torch_adam.h"

namespace nurec {
namespace {

void adam(at::TensorList parameters, MaybeTensors const& gradients, at::TensorList first, at::TensorList second,
          at::TensorList steps, at::Tensor const& rates, std::optional<at::Tensor> const& failed,
          c10::List<bool> const& touched_only, double beta_1, double beta_2, double epsilon,
          MaybeTensor const& directions, MaybeTensor const& colours, at::OptionalIntArrayRef places) {
    AdamParams const p = checked_adam({parameters, gradients, first, second, steps, rates, failed, touched_only, beta_1,
                                       beta_2, epsilon, directions, colours, places});
    cpu::adam(p);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("adam", &adam);
}

}  // namespace nurec
