// SPDX-License-Identifier: Apache-2.0
// nurec_lite::count_pairs on the CPU.
#include <torch/library.h>

#include "torch_count_pairs.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor count_pairs(at::TensorList gaussians, Tensor const& features, at::TensorList rays, at::TensorList lists,
                   Tensor const& view, bool moving) {
    RenderTensors const in = render_tensors(gaussians, features, rays, lists, view);
    check_render(in);
    Tensor const found = empty_counts(in);
    cpu::count_pairs(params_of(in, moving), counts_of(found));
    return found;
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("count_pairs", &count_pairs);
}

}  // namespace nurec
