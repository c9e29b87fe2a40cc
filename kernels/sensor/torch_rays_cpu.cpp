// SPDX-License-Identifier: Apache-2.0
// nurec_lite::rays on the CPU.
#include <torch/library.h>

#include "torch_rays.h"

namespace nurec {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor> rays(Tensor const& view, Tensor const& directions, Tensor const& fractions,
                                        bool origins) {
    return rays_by(&cpu::make_rays, view, directions, fractions, origins);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("rays", &rays);
}

}  // namespace nurec
