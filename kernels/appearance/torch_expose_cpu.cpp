// SPDX-License-Identifier: Apache-2.0
// nurec_lite::expose on the CPU.
#include <torch/library.h>

#include "torch_expose.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor expose(Tensor const& image, Tensor const& log_gain, Tensor const& offset, MaybeTensor const& vignetting) {
    return exposed_image_by(&cpu::expose, image, log_gain, offset, vignetting);
}

ExposedGradients expose_backward(Tensor const& image, Tensor const& log_gain, MaybeTensor const& vignetting,
                                 Tensor const& d_exposed) {
    return exposed_gradients_by(&cpu::expose_backward, image, log_gain, vignetting, d_exposed);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("expose", &expose);
    m.impl("expose_backward", &expose_backward);
}

}  // namespace nurec
