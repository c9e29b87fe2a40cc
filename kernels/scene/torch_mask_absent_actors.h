// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::mask_absent_actors takes and gives, on either device.
#pragma once

#include <ATen/ops/empty_like.h>

#include <vector>

#include "../common/torch_check.h"
#include "mask_absent_actors.h"

namespace nurec {

using Tensors = std::vector<at::Tensor>;

inline Presence checked_presence(at::Tensor const& node, int64_t still, at::Tensor const& first,
                                 at::Tensor const& last) {
    auto const device = node.device();
    check_tensor(node, "node", at::kLong, {-1}, device);
    int64_t const n = node.size(0);
    TORCH_CHECK_VALUE(still >= 0 && still <= n, "still is ", still, ", but must be 0 to ", n);
    check_tensor(first, "first", at::kDouble, {-1}, device);
    check_tensor(last, "last", at::kDouble, {first.size(0)}, device);
    check_range(node, "node", 0, first.size(0));
    return {n, still, node.const_data_ptr<int64_t>(), first.const_data_ptr<double>(), last.const_data_ptr<double>()};
}

inline std::vector<OpacitiesAt> checked_opacities(at::TensorList opacities, at::TensorList times, Tensors const& out,
                                                  int64_t n, at::Device device) {
    TORCH_CHECK_VALUE(opacities.size() == times.size(), "there are ", opacities.size(), " opacities, but ",
                      times.size(), " times");
    std::vector<OpacitiesAt> found;
    for (std::size_t q = 0; q < opacities.size(); ++q) {
        check_tensor(opacities[q], "opacities", at::kFloat, {n}, device);
        check_tensor(times[q], "times", at::kDouble, {}, device);
        found.push_back({times[q].const_data_ptr<double>(), opacities[q].const_data_ptr<float>(),
                         out[q].mutable_data_ptr<float>()});
    }
    return found;
}

// By the device's driver.
template <class Driver>
Tensors present_opacities_by(Driver const& driver, at::TensorList opacities, at::TensorList times,
                             at::Tensor const& node, int64_t still, at::Tensor const& first, at::Tensor const& last) {
    Presence const in = checked_presence(node, still, first, last);
    Tensors out;
    for (at::Tensor const& one : opacities) out.push_back(at::empty_like(one));
    auto const each = checked_opacities(opacities, times, out, in.n, node.device());
    driver(in, each.data(), int64_t(each.size()));
    return out;
}

}  // namespace nurec
