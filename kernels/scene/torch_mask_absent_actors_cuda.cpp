// SPDX-License-Identifier: Apache-2.0
// nurec_lite::mask_absent_actors on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_mask_absent_actors.h"

namespace nurec {
namespace {

using at::Tensor;

Tensors mask_absent_actors(at::TensorList opacities, at::TensorList times, Tensor const& node, int64_t still,
                           Tensor const& first, Tensor const& last) {
    Site site(node.device());
    auto const launch = [&](Presence const& in, OpacitiesAt const* at, int64_t n) {
        cuda::mask_absent_actors(in, at, n, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return present_opacities_by(launch, opacities, times, node, still, first, last);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("mask_absent_actors", &mask_absent_actors);
}

}  // namespace nurec
