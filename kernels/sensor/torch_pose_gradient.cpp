// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::pose_gradient: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "../common/torch_check.h"
#include "pose_gradient.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

PlacedSet checked_placed(at::TensorList placed, at::TensorList grads, std::size_t first, at::Device device) {
    at::Tensor const &means = placed[first], &quats = placed[first + 1];
    at::Tensor const &d_means = grads[first], &d_quats = grads[first + 1];
    int64_t const n = means.size(0);
    check_tensor(means, "means", at::kFloat, {n, 3}, device);
    check_tensor(quats, "quats", at::kFloat, {n, 4}, device);
    check_tensor(d_means, "d_means", at::kFloat, {n, 3}, device);
    check_tensor(d_quats, "d_quats", at::kFloat, {n, 4}, device);
    return {n, means.const_data_ptr<float>(), quats.const_data_ptr<float>(), d_means.const_data_ptr<float>(),
            d_quats.const_data_ptr<float>()};
}

// `driver` is the device's.
template <class Driver>
at::Tensor pose_gradient_by(Driver const& driver, at::Tensor const& centre, at::TensorList placed,
                            at::TensorList grads) {
    auto const device = centre.device();
    check_tensor(centre, "centre", at::kFloat, {3}, device);
    TORCH_CHECK_VALUE((placed.size() == 2 || placed.size() == 2 * MAX_PLACED) && grads.size() == placed.size(),
                      "placed has ", placed.size(), " tensors and grads ", grads.size(),
                      ", but they must have as many as each other, 2 or 4: means and quats of each set");
    PlacedGaussians in = {{}, reinterpret_cast<Vec3<float> const*>(centre.const_data_ptr<float>())};
    for (std::size_t k = 0; 2 * k < placed.size(); ++k) in.sets[k] = checked_placed(placed, grads, 2 * k, device);
    at::Tensor gradient = at::empty({POSE_DELTA_FLOATS}, centre.options());
    driver(in, gradient.mutable_data_ptr<float>());
    return gradient;
}

#ifdef NUREC_CUDA

at::Tensor pose_gradient(at::Tensor const& centre, at::TensorList placed, at::TensorList grads) {
    Site site(centre.device());
    auto const launch = [&](PlacedGaussians const& in, float* gradient) {
        cuda::pose_gradient(in, gradient, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return pose_gradient_by(launch, centre, placed, grads);
}

#else

at::Tensor pose_gradient(at::Tensor const& centre, at::TensorList placed, at::TensorList grads) {
    return pose_gradient_by(&cpu::pose_gradient, centre, placed, grads);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("pose_gradient", &pose_gradient);
}

}  // namespace nurec
