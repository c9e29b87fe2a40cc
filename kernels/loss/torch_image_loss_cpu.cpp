// SPDX-License-Identifier: Apache-2.0
// nurec_lite::image_loss on the CPU.
#include <torch/library.h>

#include "torch_image_loss.h"

namespace nurec {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor> image_loss(Tensor const& rendered, Tensor const& target, double ssim_weight) {
    return image_loss_by(&cpu::image_loss, rendered, target, ssim_weight);
}

Tensor image_loss_backward(Tensor const& rendered, Tensor const& target, double ssim_weight, Tensor const& slopes,
                           Tensor const& d_loss) {
    return image_gradient_by(&cpu::image_loss_backward, rendered, target, ssim_weight, slopes, d_loss);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("image_loss", &image_loss);
    m.impl("image_loss_backward", &image_loss_backward);
}

}  // namespace nurec
