// SPDX-License-Identifier: Apache-2.0
// nurec_lite::sgld_noise on the CPU.
#include <torch/library.h>

#include "torch_sgld_noise.h"

namespace nurec {
namespace {

using at::Tensor;

void sgld_noise(Tensor const& means, Tensor const& log_scales, Tensor const& quats, Tensor const& opacity_logits,
                Tensor const& lidar_logits, Tensor const& step, int64_t seed, Tensor const& amount,
                MaybeTensor const& failed, double least) {
    explore_by(&cpu::sgld_noise,
               {means, log_scales, quats, opacity_logits, lidar_logits, step, seed, amount, failed, least});
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("sgld_noise", &sgld_noise);
}

}  // namespace nurec
