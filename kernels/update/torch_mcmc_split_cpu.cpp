// SPDX-License-Identifier: Apache-2.0
// nurec_lite::part on the CPU.
#include <torch/library.h>

#include "torch_mcmc_split.h"

namespace nurec {
namespace {

PartedTensors mcmc_split(at::Tensor const& logits, at::Tensor const& copies) {
    return part_by(&cpu::mcmc_split, logits, copies);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("mcmc_split", &mcmc_split);
}

}  // namespace nurec
