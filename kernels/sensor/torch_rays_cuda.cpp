// SPDX-License-Identifier: Apache-2.0
// nurec_lite::rays on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_rays.h"

namespace nurec {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor> rays(Tensor const& view, Tensor const& directions, Tensor const& fractions,
                                        bool origins) {
    Site site(directions.device());
    auto const launch = [&](RayParams const& p) {
        cuda::make_rays(p, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return rays_by(launch, view, directions, fractions, origins);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("rays", &rays);
}

}  // namespace nurec
