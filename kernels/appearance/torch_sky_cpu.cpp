// SPDX-License-Identifier: Apache-2.0
// nurec_lite::over_sky on the CPU.
#include <torch/library.h>

#include "torch_sky.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor over_sky(Tensor const& features, Tensor const& transmittance, Tensor const& sky, Tensor const& directions) {
    return over_sky_by(&cpu::over_sky, features, transmittance, sky, directions);
}

std::tuple<Tensor, Tensor> over_sky_backward(Tensor const& transmittance, Tensor const& sky, Tensor const& directions,
                                             Tensor const& d_image) {
    return sky_gradients_by(&cpu::over_sky_backward, transmittance, sky, directions, d_image);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("over_sky", &over_sky);
    m.impl("over_sky_backward", &over_sky_backward);
}

}  // namespace nurec
