// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::expose and ::expose_backward: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "../common/torch_check.h"
#include "expose.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

using ExposedGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

float const* checked_three(at::Tensor const& t, char const* name, at::Device device) {
    check_tensor(t, name, at::kFloat, {3}, device);
    return t.const_data_ptr<float>();
}

ExposedImage checked_exposed(at::Tensor const& image, at::Tensor const& log_gain, MaybeTensor const& vignetting) {
    auto const device = image.device();
    check_tensor(image, "image", at::kFloat, {-1, -1, 3}, device);
    check_image(image.size(1), image.size(0), 1);
    return {int(image.size(0)),
            int(image.size(1)),
            image.const_data_ptr<float>(),
            checked_three(log_gain, "log_gain", device),
            nullptr,
            vignetting ? checked_three(*vignetting, "vignetting", device) : nullptr};
}

// `forward` and `backward` are the device's drivers.
template <class Forward>
at::Tensor exposed_image_by(Forward const& forward, at::Tensor const& image, at::Tensor const& log_gain,
                            at::Tensor const& offset, MaybeTensor const& vignetting) {
    ExposedImage in = checked_exposed(image, log_gain, vignetting);
    in.offset = checked_three(offset, "offset", image.device());
    at::Tensor exposed = at::empty_like(image);
    forward(in, exposed.mutable_data_ptr<float>());
    return exposed;
}

template <class Backward>
ExposedGradients exposed_gradients_by(Backward const& backward, at::Tensor const& image, at::Tensor const& log_gain,
                                      MaybeTensor const& vignetting, at::Tensor const& d_exposed) {
    ExposedImage const in = checked_exposed(image, log_gain, vignetting);
    check_tensor(d_exposed, "d_exposed", at::kFloat, {in.height, in.width, 3}, image.device());
    at::Tensor d_image = at::empty_like(image), d_log_gain = at::empty_like(log_gain);
    at::Tensor d_offset = at::empty_like(log_gain), d_vignetting = at::empty({vignetting ? 3 : 0}, image.options());
    backward(in, ExposedGrads{d_exposed.const_data_ptr<float>(), d_image.mutable_data_ptr<float>(),
                              d_log_gain.mutable_data_ptr<float>(), d_offset.mutable_data_ptr<float>(),
                              vignetting ? d_vignetting.mutable_data_ptr<float>() : nullptr});
    return {d_image, d_log_gain, d_offset, d_vignetting};
}

using at::Tensor;

#ifdef NUREC_CUDA

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

#else

Tensor expose(Tensor const& image, Tensor const& log_gain, Tensor const& offset, MaybeTensor const& vignetting) {
    return exposed_image_by(&cpu::expose, image, log_gain, offset, vignetting);
}

ExposedGradients expose_backward(Tensor const& image, Tensor const& log_gain, MaybeTensor const& vignetting,
                                 Tensor const& d_exposed) {
    return exposed_gradients_by(&cpu::expose_backward, image, log_gain, vignetting, d_exposed);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("expose", &expose);
    m.impl("expose_backward", &expose_backward);
}

}  // namespace nurec
