// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::mask_absent_actors: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <vector>

#include "../common/torch_check.h"
#include "mask_absent_actors.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

using Tensors = std::vector<at::Tensor>;

Presence checked_presence(at::Tensor const& node, int64_t still, at::Tensor const& first, at::Tensor const& last) {
    auto const device = node.device();
    check_tensor(node, "node", at::kLong, {-1}, device);
    int64_t const n = node.size(0);
    TORCH_CHECK_VALUE(still >= 0 && still <= n, "still is ", still, ", but must be 0 to ", n);
    check_tensor(first, "first", at::kDouble, {-1}, device);
    check_tensor(last, "last", at::kDouble, {first.size(0)}, device);
    check_range(node, "node", 0, first.size(0));
    return {n, still, node.const_data_ptr<int64_t>(), first.const_data_ptr<double>(), last.const_data_ptr<double>()};
}

std::vector<OpacitiesAt> checked_opacities(at::TensorList opacities, at::TensorList times, Tensors const& out,
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

// Calls the device's driver.
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

using at::Tensor;

#ifdef NUREC_CUDA

Tensors mask_absent_actors(at::TensorList opacities, at::TensorList times, Tensor const& node, int64_t still,
                           Tensor const& first, Tensor const& last) {
    Site site(node.device());
    auto const launch = [&](Presence const& in, OpacitiesAt const* at, int64_t n) {
        cuda::mask_absent_actors(in, at, n, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return present_opacities_by(launch, opacities, times, node, still, first, last);
}

#else

Tensors mask_absent_actors(at::TensorList opacities, at::TensorList times, Tensor const& node, int64_t still,
                           Tensor const& first, Tensor const& last) {
    return present_opacities_by(&cpu::mask_absent_actors, opacities, times, node, still, first, last);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("mask_absent_actors", &mask_absent_actors);
}

}  // namespace nurec
