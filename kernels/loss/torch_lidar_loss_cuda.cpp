// SPDX-License-Identifier: Apache-2.0
// nurec_lite::lidar_loss on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_lidar_loss.h"

namespace nurec {
namespace {

using at::Tensor;

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

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("lidar_loss", &lidar_loss);
    m.impl("lidar_loss_backward", &lidar_loss_backward);
}

}  // namespace nurec
