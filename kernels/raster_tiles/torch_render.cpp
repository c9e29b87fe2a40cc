// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::render and ::render_backward: checks and allocation, for the CPU and for CUDA.
#include <torch/library.h>

#include "../project/torch_render.h"
#include "render.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

BackwardPlan checked_plan(bool split, bool launch_bounds, bool half_staging) {
    TORCH_CHECK_VALUE(split || !(launch_bounds || half_staging),
                      "launch_bounds and half_staging are about the kernels of split, which is false");
    return {split, launch_bounds, half_staging};
}

using at::Tensor;

#ifdef NUREC_CUDA

Blended render(at::TensorList gaussians, Tensor const& features, at::TensorList rays, at::TensorList lists,
               Tensor const& view, bool moving, bool split, bool launch_bounds, bool half_staging) {
    checked_plan(split, launch_bounds, half_staging);
    RenderTensors const in = render_tensors(gaussians, features, rays, lists, view);
    check_render(in);
    Site site(view.device());
    Blended const found = empty_outputs(in);
    cuda::render_forward(params_of(in, moving), written(found), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return found;
}

Gradients render_backward(at::TensorList gaussians, Tensor const& features, at::TensorList rays, at::TensorList lists,
                          Tensor const& view, bool moving, at::TensorList outputs, Tensor const& d_out,
                          std::optional<Tensor> const& d_distance, Tensor const& d_transmittance, bool ray_gradients,
                          bool split, bool launch_bounds, bool half_staging) {
    BackwardPlan const plan = checked_plan(split, launch_bounds, half_staging);
    RenderTensors const in = render_tensors(gaussians, features, rays, lists, view);
    check_render(in);
    OutputTensors const given = checked_outputs(in, outputs, d_out, d_distance, d_transmittance);
    Site site(view.device());
    bool const optional =
        plan.split && features.size(1) == 3 && !ray_gradients;  // kernels that do without the distance
    Tensor const d_t = d_distance ? *d_distance : optional ? Tensor() : at::zeros_like(given.distance);
    GradientTensors const found = zero_gradients(in, ray_gradients);
    cuda::render_backward(params_of(in, moving), outputs_of(given), grads_of(given, d_t, found), plan, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return found.all();
}

#else

Blended render(at::TensorList gaussians, Tensor const& features, at::TensorList rays, at::TensorList lists,
               Tensor const& view, bool moving, bool split, bool launch_bounds, bool half_staging) {
    checked_plan(split, launch_bounds, half_staging);
    RenderTensors const in = render_tensors(gaussians, features, rays, lists, view);
    check_render(in);
    Blended const found = empty_outputs(in);
    cpu::render_forward(params_of(in, moving), written(found));
    return found;
}

Gradients render_backward(at::TensorList gaussians, Tensor const& features, at::TensorList rays, at::TensorList lists,
                          Tensor const& view, bool moving, at::TensorList outputs, Tensor const& d_out,
                          std::optional<Tensor> const& d_distance, Tensor const& d_transmittance, bool ray_gradients,
                          bool split, bool launch_bounds, bool half_staging) {
    checked_plan(split, launch_bounds, half_staging);
    RenderTensors const in = render_tensors(gaussians, features, rays, lists, view);
    check_render(in);
    OutputTensors const given = checked_outputs(in, outputs, d_out, d_distance, d_transmittance);
    Tensor const d_t = d_distance ? *d_distance : at::zeros_like(given.distance);
    GradientTensors const found = zero_gradients(in, ray_gradients);
    cpu::render_backward(params_of(in, moving), outputs_of(given), grads_of(given, d_t, found));
    return found.all();
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("render", &render);
    m.impl("render_backward", &render_backward);
}

}  // namespace nurec
