// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::lidar_loss and ::lidar_loss_backward take and give, on either device.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <tuple>

#include "../common/torch_check.h"
#include "lidar_loss.h"

namespace nurec {

// The tensors of LidarRays, as both operators take them.
struct LidarTensors {
    at::Tensor const &distance, &features, &transmittance, &ranges, &intensities, &returned;
    MaybeTensor const& counted;
    bool aimed;
};

inline LidarRays checked_rays(LidarTensors const& t) {
    auto const device = t.distance.device();
    check_tensor(t.distance, "distance", at::kFloat, {-1}, device);
    int64_t const n = t.distance.size(0);
    check_tensor(t.features, "features", at::kFloat, {n, 2}, device);
    check_tensor(t.transmittance, "transmittance", at::kFloat, {n}, device);
    check_tensor(t.ranges, "ranges", at::kFloat, {n}, device);
    check_tensor(t.intensities, "intensities", at::kFloat, {n}, device);
    check_tensor(t.returned, "returned", at::kBool, {n}, device);
    if (t.counted) check_tensor(*t.counted, "counted", at::kBool, {n}, device);
    return {n,
            t.distance.const_data_ptr<float>(),
            t.features.const_data_ptr<float>(),
            t.transmittance.const_data_ptr<float>(),
            t.ranges.const_data_ptr<float>(),
            t.intensities.const_data_ptr<float>(),
            t.returned.const_data_ptr<bool>(),
            t.counted ? t.counted->const_data_ptr<bool>() : nullptr,
            t.aimed};
}

// `forward` and `backward` are the device's drivers.
template <class Forward>
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> lidar_loss_by(Forward const& forward,
                                                                         LidarTensors const& tensors) {
    LidarRays const in = checked_rays(tensors);
    auto const made = [&](at::IntArrayRef shape) { return at::empty(shape, tensors.distance.options()); };
    at::Tensor range = made({}), intensity = made({}), drop = made({}), counts = made({2});
    forward(in, LidarTerms{range.mutable_data_ptr<float>(), intensity.mutable_data_ptr<float>(),
                           drop.mutable_data_ptr<float>(), counts.mutable_data_ptr<float>()});
    return {range, intensity, drop, counts};
}

template <class Backward>
std::tuple<at::Tensor, at::Tensor, at::Tensor> lidar_gradients_by(Backward const& backward, LidarTensors const& tensors,
                                                                  at::Tensor const& counts, MaybeTensor const& d_range,
                                                                  MaybeTensor const& d_intensity,
                                                                  MaybeTensor const& d_drop) {
    LidarRays const in = checked_rays(tensors);
    auto const device = tensors.distance.device();
    check_tensor(counts, "counts", at::kFloat, {2}, device);
    at::Tensor d_distance = at::empty_like(tensors.distance), d_features = at::empty_like(tensors.features),
               d_transmittance = at::empty_like(tensors.transmittance);
    backward(in, LidarGrads{counts.const_data_ptr<float>(), checked_scalar(d_range, "d_range", device),
                            checked_scalar(d_intensity, "d_intensity", device),
                            checked_scalar(d_drop, "d_drop", device), d_distance.mutable_data_ptr<float>(),
                            d_features.mutable_data_ptr<float>(), d_transmittance.mutable_data_ptr<float>()});
    return {d_distance, d_features, d_transmittance};
}

}  // namespace nurec
