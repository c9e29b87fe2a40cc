// SPDX-License-Identifier: Apache-2.0
// nurec_lite::count_pairs on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_count_pairs.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor count_pairs(at::TensorList gaussians, Tensor const& features, at::TensorList rays, at::TensorList lists,
                   Tensor const& view, bool moving) {
    RenderTensors const in = render_tensors(gaussians, features, rays, lists, view);
    check_render(in);
    Site site(view.device());
    Tensor const found = empty_counts(in);
    cuda::count_pairs(params_of(in, moving), counts_of(found), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return found;
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("count_pairs", &count_pairs);
}

}  // namespace nurec
