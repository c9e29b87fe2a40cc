// SPDX-License-Identifier: Apache-2.0
// nurec_lite::render on CUDA: checks, allocation, and the driver.
#include <torch/library.h>

#include "torch_render_cuda.h"

namespace nurec {
namespace {

using at::Tensor;

Four render(Tensor const& still_means, Tensor const& still_quats, Tensor const& means, Tensor const& quats,
            Tensor const& velocities, Tensor const& scales, Tensor const& opacities, Tensor const& features,
            Tensor const& origins, Tensor const& directions, Tensor const& delays, Tensor const& rays,
            Tensor const& offsets, Tensor const& gaussians, bool moving, int64_t backward,
            at::ArrayRef<double> centre) {
    check_backward(backward);
    GaussianTensors const g = {still_means, still_quats, means, quats, velocities, scales, opacities, centre};
    RenderTensors const in = {g, features, origins, directions, delays, rays, offsets, gaussians};
    check_render(in);
    c10::cuda::CUDAGuard const guard(means.device());
    Memory memory(means.device());
    Four const found = empty_outputs(in);
    auto const& [out, distance, transmittance, median] = found;
    cuda::render_forward(make_params(in, moving, memory),
                         {out.mutable_data_ptr<float>(), distance.mutable_data_ptr<float>(),
                          transmittance.mutable_data_ptr<float>(), median.mutable_data_ptr<float>()},
                         c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return found;
}

// Zeros in which the kernels add up the gradients of each Gaussian.
template <class R>
R* zero_rows(Tensor const& like, Tensor& keeper) {
    keeper = at::zeros({like.size(0), sizeof(R) / sizeof(float)}, like.options());
    return reinterpret_cast<R*>(writable(keeper));
}

Ten render_backward(Tensor const& still_means, Tensor const& still_quats, Tensor const& means, Tensor const& quats,
                    Tensor const& velocities, Tensor const& scales, Tensor const& opacities, Tensor const& features,
                    Tensor const& origins, Tensor const& directions, Tensor const& delays, Tensor const& rays,
                    Tensor const& offsets, Tensor const& gaussians, bool moving, Tensor const& out,
                    Tensor const& distance, Tensor const& transmittance, Tensor const& d_out,
                    std::optional<Tensor> const& d_distance, Tensor const& d_transmittance, bool ray_gradients,
                    int64_t backward, at::ArrayRef<double> centre) {
    check_backward(backward);
    GaussianTensors const g = {still_means, still_quats, means, quats, velocities, scales, opacities, centre};
    RenderTensors const in = {g, features, origins, directions, delays, rays, offsets, gaussians};
    check_render(in);
    OutputTensors const outputs = {out, distance, transmittance, d_out, d_distance, d_transmittance};
    check_outputs(in, outputs);
    c10::cuda::CUDAGuard const guard(means.device());
    Memory memory(means.device());
    Ten const found = zero_gradients(in, ray_gradients);
    bool const optional = backward && features.size(1) == 3 && !ray_gradients;  // kernels that do without the distance
    Tensor const d_t = optional && !d_distance ? Tensor() : outputs.d_distance_or_zeros();
    Tensor sums;
    cuda::RenderGrads const d = {d_out.const_data_ptr<float>(),
                                 d_t.defined() ? d_t.const_data_ptr<float>() : nullptr,
                                 d_transmittance.const_data_ptr<float>(),
                                 backward ? nullptr : zero_rows<cuda::Row>(scales, sums),
                                 backward ? zero_rows<cuda::MomentRow>(scales, sums) : nullptr,
                                 gaussian_grads(found),
                                 writable(std::get<7>(found)),
                                 writable(std::get<8>(found)),
                                 writable(std::get<9>(found))};
    cuda::RenderParams const p = make_params(in, moving, memory);
    cuda::RenderOutputs const o = {readable(out), readable(distance), readable(transmittance), nullptr};
    auto const stream = c10::cuda::getCurrentCUDAStream();
    if (backward)
        cuda::split_backward(p, o, d, static_cast<int>(backward), stream);
    else
        cuda::render_backward(p, o, d, stream);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return found;
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("render", &render);
    m.impl("render_backward", &render_backward);
}

}  // namespace nurec
