// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::mcmc_split: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "../common/torch_check.h"
#include "mcmc_split.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

using PartedTensors = std::tuple<at::Tensor, at::Tensor>;

void check_copied(at::Tensor const& logits, at::Tensor const& copies) {
    auto const device = logits.device();
    check_tensor(logits, "logits", at::kFloat, {-1, -1}, device);
    TORCH_CHECK_VALUE(logits.size(1) == 1 || logits.size(1) == 2, "logits has ", logits.size(1),
                      " columns, but must have 1, or 2: the camera's opacity, and the lidar's own");
    check_tensor(copies, "copies", at::kLong, {logits.size(0)}, device);
    check_range(copies, "copies", 1, MAX_COPIES + 1);
}

// `driver` is the device's.
template <class Driver>
PartedTensors part_by(Driver const& driver, at::Tensor const& logits, at::Tensor const& copies) {
    check_copied(logits, copies);
    at::Tensor split_logits = at::empty_like(logits), factors = at::empty({logits.size(0)}, logits.options());
    driver({logits.size(0), logits.size(1), logits.const_data_ptr<float>(), copies.const_data_ptr<int64_t>(),
            split_logits.mutable_data_ptr<float>(), factors.mutable_data_ptr<float>()});
    return {split_logits, factors};
}

#ifdef NUREC_CUDA

PartedTensors mcmc_split(at::Tensor const& logits, at::Tensor const& copies) {
    Site site(logits.device());
    auto const launch = [&](CopiedGaussians const& in) {
        cuda::mcmc_split(in, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return part_by(launch, logits, copies);
}

#else

PartedTensors mcmc_split(at::Tensor const& logits, at::Tensor const& copies) {
    return part_by(&cpu::mcmc_split, logits, copies);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("mcmc_split", &mcmc_split);
}

}  // namespace nurec
