// SPDX-License-Identifier: Apache-2.0
// nurec_lite::present_opacities on the CPU.
#include <torch/library.h>

#include "torch_present_opacities.h"

namespace nurec {
namespace {

using at::Tensor;

Tensors present_opacities(at::TensorList opacities, at::TensorList times, Tensor const& node, int64_t still,
                          Tensor const& first, Tensor const& last) {
    return present_opacities_by(&cpu::present_opacities, opacities, times, node, still, first, last);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("present_opacities", &present_opacities);
}

}  // namespace nurec
