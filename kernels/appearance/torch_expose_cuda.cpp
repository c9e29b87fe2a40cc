// SPDX-License-Identifier: Apache-2.0
// nurec_lite::expose on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_expose.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor expose(Tensor const& image, Tensor const& log_gain, Tensor const& offset, MaybeTensor const& vignetting) {
    Site site(image.device());
    auto const launch = [&](ExposedImage const& in, float* exposed) {
        cuda::expose(in, exposed, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return exposed_image_by(launch, image, log_gain, offset, vignetting);
}

ExposedGradients expose_backward(Tensor const& image, Tensor const& log_gain, MaybeTensor const& vignetting,
                                 Tensor const& d_exposed) {
    Site site(image.device());
    auto const launch = [&](ExposedImage const& in, ExposedGrads const& d) {
        cuda::expose_backward(in, d, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return exposed_gradients_by(launch, image, log_gain, vignetting, d_exposed);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("expose", &expose);
    m.impl("expose_backward", &expose_backward);
}

}  // namespace nurec
