// SPDX-License-Identifier: Apache-2.0
// nurec_lite::part on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_mcmc_split.h"

namespace nurec {
namespace {

PartedTensors mcmc_split(at::Tensor const& logits, at::Tensor const& copies) {
    Site site(logits.device());
    auto const launch = [&](CopiedGaussians const& in) {
        cuda::mcmc_split(in, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return part_by(launch, logits, copies);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("mcmc_split", &mcmc_split);
}

}  // namespace nurec
