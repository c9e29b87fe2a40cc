// SPDX-License-Identifier: Apache-2.0
// nurec_lite::image_loss on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_image_loss.h"

namespace nurec {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor> image_loss(Tensor const& rendered, Tensor const& target, double ssim_weight) {
    Site site(rendered.device());
    auto const launch = [&](ImagePair const& in, float* loss, float* slopes) {
        cuda::image_loss(in, loss, slopes, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return image_loss_by(launch, rendered, target, ssim_weight);
}

Tensor image_loss_backward(Tensor const& rendered, Tensor const& target, double ssim_weight, Tensor const& slopes,
                           Tensor const& d_loss) {
    Site site(rendered.device());
    auto const launch = [&](ImagePair const& in, ImageGrads const& d) {
        cuda::image_loss_backward(in, d, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return image_gradient_by(launch, rendered, target, ssim_weight, slopes, d_loss);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("image_loss", &image_loss);
    m.impl("image_loss_backward", &image_loss_backward);
}

}  // namespace nurec
