// SPDX-License-Identifier: Apache-2.0
// nurec_lite::mask_absent_actors on the CPU.
#include <torch/library.h>

#include "torch_mask_absent_actors.h"

namespace nurec {
namespace {

using at::Tensor;

Tensors mask_absent_actors(at::TensorList opacities, at::TensorList times, Tensor const& node, int64_t still,
                           Tensor const& first, Tensor const& last) {
    return present_opacities_by(&cpu::mask_absent_actors, opacities, times, node, still, first, last);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("mask_absent_actors", &mask_absent_actors);
}

}  // namespace nurec
