// SPDX-License-Identifier: Apache-2.0
// nurec_lite::correct_view on the CPU.
#include <torch/library.h>

#include "torch_correct_view.h"

namespace nurec {
namespace {

using at::Tensor;

FiveTensors correct_view(Tensor const& view, Tensor const& start, Tensor const& end, at::TensorList known,
                         int64_t camera) {
    return correct_view_by(&cpu::correct_view, view, start, end, known, camera);
}

std::vector<Tensor> correct_view_backward(Tensor const& view, at::TensorList known, int64_t camera,
                                          Tensor const& d_nudge, Tensor const& d_drift) {
    return correct_view_gradients_by(&cpu::correct_view_backward, view, known, camera, d_nudge, d_drift);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("correct_view", &correct_view);
    m.impl("correct_view_backward", &correct_view_backward);
}

}  // namespace nurec
