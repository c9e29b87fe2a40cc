// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::image_loss and ::image_loss_backward: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "../common/torch_check.h"
#include "image_loss.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

ImagePair checked_images(at::Tensor const& rendered, at::Tensor const& target, double ssim_weight) {
    check_tensor(rendered, "rendered", at::kFloat, {-1, -1, CHANNELS}, rendered.device());
    auto const height = rendered.size(0), width = rendered.size(1);
    check_count(height, "height of rendered", MAX_SIDE);
    check_count(width, "width of rendered", MAX_SIDE);
    check_tensor(target, "target", at::kFloat, {height, width, CHANNELS}, rendered.device());
    return {height, CHANNELS * width, rendered.const_data_ptr<float>(), target.const_data_ptr<float>(),
            float(ssim_weight)};
}

// `forward` and `backward` are the device's drivers.
template <class Forward>
std::tuple<at::Tensor, at::Tensor> image_loss_by(Forward const& forward, at::Tensor const& rendered,
                                                 at::Tensor const& target, double ssim_weight) {
    ImagePair const in = checked_images(rendered, target, ssim_weight);
    at::Tensor loss = at::empty({}, rendered.options());
    at::Tensor slopes = at::empty({SLOPES, in.height, in.row / CHANNELS, CHANNELS}, rendered.options());
    forward(in, loss.mutable_data_ptr<float>(), slopes.mutable_data_ptr<float>());
    return {loss, slopes};
}

template <class Backward>
at::Tensor image_gradient_by(Backward const& backward, at::Tensor const& rendered, at::Tensor const& target,
                             double ssim_weight, at::Tensor const& slopes, at::Tensor const& d_loss) {
    ImagePair const in = checked_images(rendered, target, ssim_weight);
    check_tensor(slopes, "slopes", at::kFloat, {SLOPES, in.height, in.row / CHANNELS, CHANNELS}, rendered.device());
    check_tensor(d_loss, "d_loss", at::kFloat, {}, rendered.device());
    at::Tensor d_rendered = at::empty_like(rendered);
    backward(in, ImageGrads{slopes.const_data_ptr<float>(), d_loss.const_data_ptr<float>(),
                            d_rendered.mutable_data_ptr<float>()});
    return d_rendered;
}

using at::Tensor;

#ifdef NUREC_CUDA

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

#else

std::tuple<Tensor, Tensor> image_loss(Tensor const& rendered, Tensor const& target, double ssim_weight) {
    return image_loss_by(&cpu::image_loss, rendered, target, ssim_weight);
}

Tensor image_loss_backward(Tensor const& rendered, Tensor const& target, double ssim_weight, Tensor const& slopes,
                           Tensor const& d_loss) {
    return image_gradient_by(&cpu::image_loss_backward, rendered, target, ssim_weight, slopes, d_loss);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("image_loss", &image_loss);
    m.impl("image_loss_backward", &image_loss_backward);
}

}  // namespace nurec
