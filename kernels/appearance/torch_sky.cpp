// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::over_sky and ::over_sky_backward: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <limits>
#include <tuple>

#include "../common/torch_check.h"
#include "sky.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

SkyRays checked_sky(at::Tensor const& transmittance, at::Tensor const& sky, at::Tensor const& directions) {
    auto const device = transmittance.device();
    check_tensor(transmittance, "transmittance", at::kFloat, {-1}, device);
    check_tensor(sky, "sky", at::kFloat, {3, -1, -1}, device);
    check_count(sky.size(1), "height of sky", MAX_SIDE);
    check_count(sky.size(2), "width of sky", MAX_SIDE);
    check_count(sky.numel(), "size of sky", std::numeric_limits<int>::max());
    check_tensor(directions, "directions", at::kFloat, {transmittance.size(0), 3}, device);
    return {transmittance.size(0),
            int(sky.size(1)),
            int(sky.size(2)),
            transmittance.const_data_ptr<float>(),
            sky.const_data_ptr<float>(),
            directions.const_data_ptr<float>()};
}

// `forward` and `backward` are the device's drivers.
template <class Forward>
at::Tensor over_sky_by(Forward const& forward, at::Tensor const& features, at::Tensor const& transmittance,
                       at::Tensor const& sky, at::Tensor const& directions) {
    SkyRays const in = checked_sky(transmittance, sky, directions);
    check_tensor(features, "features", at::kFloat, {in.n, 3}, transmittance.device());
    at::Tensor image = at::empty_like(features);
    forward(in, features.const_data_ptr<float>(), image.mutable_data_ptr<float>());
    return image;
}

template <class Backward>
std::tuple<at::Tensor, at::Tensor> sky_gradients_by(Backward const& backward, at::Tensor const& transmittance,
                                                    at::Tensor const& sky, at::Tensor const& directions,
                                                    at::Tensor const& d_image) {
    SkyRays const in = checked_sky(transmittance, sky, directions);
    check_tensor(d_image, "d_image", at::kFloat, {in.n, 3}, transmittance.device());
    at::Tensor d_transmittance = at::empty_like(transmittance), d_sky = at::empty_like(sky);
    backward(in, SkyGrads{d_image.const_data_ptr<float>(), d_transmittance.mutable_data_ptr<float>(),
                          d_sky.mutable_data_ptr<float>()});
    return {d_transmittance, d_sky};
}

using at::Tensor;

#ifdef NUREC_CUDA

Tensor over_sky(Tensor const& features, Tensor const& transmittance, Tensor const& sky, Tensor const& directions) {
    Site site(transmittance.device());
    auto const launch = [&](SkyRays const& in, float const* under, float* image) {
        cuda::over_sky(in, under, image, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return over_sky_by(launch, features, transmittance, sky, directions);
}

std::tuple<Tensor, Tensor> over_sky_backward(Tensor const& transmittance, Tensor const& sky, Tensor const& directions,
                                             Tensor const& d_image) {
    Site site(transmittance.device());
    auto const launch = [&](SkyRays const& in, SkyGrads const& d) {
        cuda::over_sky_backward(in, d, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return sky_gradients_by(launch, transmittance, sky, directions, d_image);
}

#else

Tensor over_sky(Tensor const& features, Tensor const& transmittance, Tensor const& sky, Tensor const& directions) {
    return over_sky_by(&cpu::over_sky, features, transmittance, sky, directions);
}

std::tuple<Tensor, Tensor> over_sky_backward(Tensor const& transmittance, Tensor const& sky, Tensor const& directions,
                                             Tensor const& d_image) {
    return sky_gradients_by(&cpu::over_sky_backward, transmittance, sky, directions, d_image);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("over_sky", &over_sky);
    m.impl("over_sky_backward", &over_sky_backward);
}

}  // namespace nurec
