// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::regularisers and ::regularisers_backward take and give, on either device.
#pragma once

#include <ATen/ops/empty.h>

#include <tuple>

#include "../common/torch_check.h"
#include "regularisers.h"

namespace nurec {

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

inline RegularisedGaussians checked_regularised(at::Tensor const& opacities, MaybeTensor const& lidar_opacities,
                                                at::Tensor const& scales) {
    auto const device = opacities.device();
    check_tensor(opacities, "opacities", at::kFloat, {-1}, device);
    int64_t const n = opacities.size(0);
    if (lidar_opacities) check_tensor(*lidar_opacities, "lidar_opacities", at::kFloat, {n}, device);
    check_tensor(scales, "scales", at::kFloat, {n, 3}, device);
    return {n, opacities.const_data_ptr<float>(), lidar_opacities ? lidar_opacities->const_data_ptr<float>() : nullptr,
            scales.const_data_ptr<float>()};
}

// `forward` and `backward` are the device's drivers.
template <class Forward>
ThreeTensors regularisers_by(Forward const& forward, at::Tensor const& opacities, MaybeTensor const& lidar_opacities,
                             at::Tensor const& scales) {
    RegularisedGaussians const in = checked_regularised(opacities, lidar_opacities, scales);
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
                                       MaybeTensor const& d_tie) {
    RegularisedGaussians const in = checked_regularised(opacities, lidar_opacities, scales);
    auto const device = opacities.device();
    at::Tensor d_opacities = at::empty({lidar_opacities ? in.n : 1}, opacities.options());
    at::Tensor d_lidar = at::empty({lidar_opacities ? in.n : 0}, opacities.options());
    at::Tensor d_scales = at::empty({1}, opacities.options());
    backward(in, TermGrads{checked_scalar(d_opacity, "d_opacity", device), checked_scalar(d_scale, "d_scale", device),
                           checked_scalar(d_tie, "d_tie", device), d_opacities.mutable_data_ptr<float>(),
                           d_lidar.mutable_data_ptr<float>(), d_scales.mutable_data_ptr<float>()});
    return {d_opacities, d_lidar, d_scales};
}

}  // namespace nurec
