// SPDX-License-Identifier: Apache-2.0
// nurec_lite::sgld_noise on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_sgld_noise.h"

namespace nurec {
namespace {

using at::Tensor;

void sgld_noise(Tensor const& means, Tensor const& log_scales, Tensor const& quats, Tensor const& opacity_logits,
                Tensor const& lidar_logits, Tensor const& step, int64_t seed, Tensor const& amount,
                MaybeTensor const& failed, double least) {
    Site site(means.device());
    auto const launch = [&](ExploringGaussians const& in) {
        cuda::sgld_noise(in, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    explore_by(launch, {means, log_scales, quats, opacity_logits, lidar_logits, step, seed, amount, failed, least});
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("sgld_noise", &sgld_noise);
}

}  // namespace nurec
