// SPDX-License-Identifier: Apache-2.0
// nurec_lite::over_sky on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_sky.h"

namespace nurec {
namespace {

using at::Tensor;

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

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("over_sky", &over_sky);
    m.impl("over_sky_backward", &over_sky_backward);
}

}  // namespace nurec
