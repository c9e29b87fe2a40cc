// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::lidar_loss and ::lidar_loss_backward: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "../common/torch_check.h"
#include "lidar_loss.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

// The tensors of LidarRays, as both operators take them.
struct LidarTensors {
    at::Tensor const &distance, &features, &transmittance, &ranges, &intensities, &returned;
    MaybeTensor const& counted;
    bool aimed;
};

LidarRays checked_rays(LidarTensors const& t) {
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

using at::Tensor;

#ifdef NUREC_CUDA

std::tuple<Tensor, Tensor, Tensor, Tensor> lidar_loss(Tensor const& distance, Tensor const& features,
                                                      Tensor const& transmittance, Tensor const& ranges,
                                                      Tensor const& intensities, Tensor const& returned,
                                                      MaybeTensor const& counted, bool aimed) {
    Site site(distance.device());
    auto const launch = [&](LidarRays const& in, LidarTerms const& out) {
        cuda::lidar_loss(in, out, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return lidar_loss_by(launch, {distance, features, transmittance, ranges, intensities, returned, counted, aimed});
}

std::tuple<Tensor, Tensor, Tensor> lidar_loss_backward(Tensor const& distance, Tensor const& features,
                                                       Tensor const& transmittance, Tensor const& ranges,
                                                       Tensor const& intensities, Tensor const& returned,
                                                       MaybeTensor const& counted, bool aimed, Tensor const& counts,
                                                       MaybeTensor const& d_range, MaybeTensor const& d_intensity,
                                                       MaybeTensor const& d_drop) {
    Site site(distance.device());
    auto const launch = [&](LidarRays const& in, LidarGrads const& d) {
        cuda::lidar_loss_backward(in, d, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return lidar_gradients_by(launch,
                              {distance, features, transmittance, ranges, intensities, returned, counted, aimed},
                              counts, d_range, d_intensity, d_drop);
}

#else

std::tuple<Tensor, Tensor, Tensor, Tensor> lidar_loss(Tensor const& distance, Tensor const& features,
                                                      Tensor const& transmittance, Tensor const& ranges,
                                                      Tensor const& intensities, Tensor const& returned,
                                                      MaybeTensor const& counted, bool aimed) {
    return lidar_loss_by(&cpu::lidar_loss,
                         {distance, features, transmittance, ranges, intensities, returned, counted, aimed});
}

std::tuple<Tensor, Tensor, Tensor> lidar_loss_backward(Tensor const& distance, Tensor const& features,
                                                       Tensor const& transmittance, Tensor const& ranges,
                                                       Tensor const& intensities, Tensor const& returned,
                                                       MaybeTensor const& counted, bool aimed, Tensor const& counts,
                                                       MaybeTensor const& d_range, MaybeTensor const& d_intensity,
                                                       MaybeTensor const& d_drop) {
    return lidar_gradients_by(&cpu::lidar_loss_backward,
                              {distance, features, transmittance, ranges, intensities, returned, counted, aimed},
                              counts, d_range, d_intensity, d_drop);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("lidar_loss", &lidar_loss);
    m.impl("lidar_loss_backward", &lidar_loss_backward);
}

}  // namespace nurec
