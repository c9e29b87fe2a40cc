// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::part takes and gives, on either device.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <tuple>

#include "../common/torch_check.h"
#include "mcmc_split.h"

namespace nurec {

using PartedTensors = std::tuple<at::Tensor, at::Tensor>;

inline void check_copied(at::Tensor const& logits, at::Tensor const& copies) {
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

}  // namespace nurec
