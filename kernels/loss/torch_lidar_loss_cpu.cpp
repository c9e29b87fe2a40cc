// SPDX-License-Identifier: Apache-2.0
// nurec_lite::lidar_loss on the CPU.
#include <torch/library.h>

#include "torch_lidar_loss.h"

namespace nurec {
namespace {

using at::Tensor;

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

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("lidar_loss", &lidar_loss);
    m.impl("lidar_loss_backward", &lidar_loss_backward);
}

}  // namespace nurec
