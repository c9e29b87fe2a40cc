// SPDX-License-Identifier: Apache-2.0
// nurec_lite::correct_view on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_correct_view.h"

namespace nurec {
namespace {

using at::Tensor;

FiveTensors correct_view(Tensor const& view, Tensor const& start, Tensor const& end, at::TensorList known,
                         int64_t camera) {
    Site site(view.device());
    auto const launch = [&](Known const& given, SeenView const& seen, CorrectedView const& out) {
        cuda::correct_view(given, seen, out, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return correct_view_by(launch, view, start, end, known, camera);
}

std::vector<Tensor> correct_view_backward(Tensor const& view, at::TensorList known, int64_t camera,
                                          Tensor const& d_nudge, Tensor const& d_drift) {
    Site site(view.device());
    auto const launch = [&](Known const& given, ViewRow<float> const* row, CorrectedGrads const& d,
                            Corrections<float> const& grads) {
        cuda::correct_view_backward(given, row, d, grads, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return correct_view_gradients_by(launch, view, known, camera, d_nudge, d_drift);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("correct_view", &correct_view);
    m.impl("correct_view_backward", &correct_view_backward);
}

}  // namespace nurec
