// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::regularisers and ::regularisers_backward: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

#include "../common/torch_check.h"
#include "regularisers.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

RegularisedGaussians checked_regularised(at::Tensor const& opacities, MaybeTensor const& lidar_opacities,
                                         at::Tensor const& scales, MaybeTensor const& blocks) {
    auto const device = opacities.device();
    check_tensor(opacities, "opacities", at::kFloat, {-1}, device);
    int64_t const n = opacities.size(0);
    if (lidar_opacities) check_tensor(*lidar_opacities, "lidar_opacities", at::kFloat, {n}, device);
    check_tensor(scales, "scales", at::kFloat, {n, 3}, device);
    return {n, opacities.const_data_ptr<float>(), lidar_opacities ? lidar_opacities->const_data_ptr<float>() : nullptr,
            scales.const_data_ptr<float>(), checked_blocks(blocks, n, device)};
}

// `forward` and `backward` are the device's drivers.
template <class Forward>
ThreeTensors regularisers_by(Forward const& forward, at::Tensor const& opacities, MaybeTensor const& lidar_opacities,
                             at::Tensor const& scales, MaybeTensor const& blocks) {
    RegularisedGaussians const in = checked_regularised(opacities, lidar_opacities, scales, blocks);
    auto const made = [&] { return at::empty({}, opacities.options()); };
    at::Tensor opacity = made(), scale = made(), tie = made();
    forward(in,
            Terms{opacity.mutable_data_ptr<float>(), scale.mutable_data_ptr<float>(), tie.mutable_data_ptr<float>()});
    return {opacity, scale, tie};
}

template <class Backward>
ThreeTensors regularisers_gradients_by(Backward const& backward, at::Tensor const& opacities,
                                       MaybeTensor const& lidar_opacities, at::Tensor const& scales,
                                       MaybeTensor const& d_opacity, MaybeTensor const& d_scale,
                                       MaybeTensor const& d_tie, MaybeTensor const& blocks) {
    RegularisedGaussians const in = checked_regularised(opacities, lidar_opacities, scales, blocks);
    auto const device = opacities.device();
    at::Tensor d_opacities = at::empty({lidar_opacities ? in.n : 1}, opacities.options());
    at::Tensor d_lidar = at::empty({lidar_opacities ? in.n : 0}, opacities.options());
    at::Tensor d_scales = at::empty({1}, opacities.options());
    backward(in, TermGrads{checked_scalar(d_opacity, "d_opacity", device), checked_scalar(d_scale, "d_scale", device),
                           checked_scalar(d_tie, "d_tie", device), d_opacities.mutable_data_ptr<float>(),
                           d_lidar.mutable_data_ptr<float>(), d_scales.mutable_data_ptr<float>()});
    return {d_opacities, d_lidar, d_scales};
}

using at::Tensor;

#ifdef NUREC_CUDA

ThreeTensors regularisers(Tensor const& opacities, MaybeTensor const& lidar_opacities, Tensor const& scales,
                          MaybeTensor const& blocks) {
    Site site(opacities.device());
    auto const launch = [&](RegularisedGaussians const& in, Terms const& out) {
        cuda::regularisers(in, out, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return regularisers_by(launch, opacities, lidar_opacities, scales, blocks);
}

ThreeTensors regularisers_backward(Tensor const& opacities, MaybeTensor const& lidar_opacities, Tensor const& scales,
                                   MaybeTensor const& d_opacity, MaybeTensor const& d_scale, MaybeTensor const& d_tie,
                                   MaybeTensor const& blocks) {
    Site site(opacities.device());
    auto const launch = [&](RegularisedGaussians const& in, TermGrads const& d) {
        cuda::regularisers_backward(in, d, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return regularisers_gradients_by(launch, opacities, lidar_opacities, scales, d_opacity, d_scale, d_tie, blocks);
}

#else

ThreeTensors regularisers(Tensor const& opacities, MaybeTensor const& lidar_opacities, Tensor const& scales,
                          MaybeTensor const& blocks) {
    return regularisers_by(&cpu::regularisers, opacities, lidar_opacities, scales, blocks);
}

ThreeTensors regularisers_backward(Tensor const& opacities, MaybeTensor const& lidar_opacities, Tensor const& scales,
                                   MaybeTensor const& d_opacity, MaybeTensor const& d_scale, MaybeTensor const& d_tie,
                                   MaybeTensor const& blocks) {
    return regularisers_gradients_by(&cpu::regularisers_backward, opacities, lidar_opacities, scales, d_opacity,
                                     d_scale, d_tie, blocks);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("regularisers", &regularisers);
    m.impl("regularisers_backward", &regularisers_backward);
}

}  // namespace nurec
