// SPDX-License-Identifier: Apache-2.0
// nurec_lite::render on CUDA: checks, allocation, and the driver.
#include <torch/library.h>

#include "render_cuda.h"

namespace nurec {
namespace {

using at::Tensor;

Four render(Tensor const& still_means, Tensor const& still_quats, Tensor const& means, Tensor const& quats,
            Tensor const& velocities, Tensor const& scales, Tensor const& opacities, Tensor const& features,
            Tensor const& origins, Tensor const& directions, Tensor const& delays, Tensor const& rays,
            Tensor const& offsets, Tensor const& gaussians, bool moving) {
    GaussianTensors const g = {still_means, still_quats, means, quats, velocities, scales, opacities};
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

Ten render_backward(Tensor const& still_means, Tensor const& still_quats, Tensor const& means, Tensor const& quats,
                    Tensor const& velocities, Tensor const& scales, Tensor const& opacities, Tensor const& features,
                    Tensor const& origins, Tensor const& directions, Tensor const& delays, Tensor const& rays,
                    Tensor const& offsets, Tensor const& gaussians, bool moving, Tensor const& out,
                    Tensor const& distance, Tensor const& transmittance, Tensor const& d_out, Tensor const& d_distance,
                    Tensor const& d_transmittance, bool ray_gradients) {
    GaussianTensors const g = {still_means, still_quats, means, quats, velocities, scales, opacities};
    RenderTensors const in = {g, features, origins, directions, delays, rays, offsets, gaussians};
    check_render(in);
    check_outputs(in, {out, distance, transmittance, d_out, d_distance, d_transmittance});
    c10::cuda::CUDAGuard const guard(means.device());
    Memory memory(means.device());
    Ten const found = zero_gradients(in, ray_gradients);
    Tensor const rows = at::zeros({scales.size(0), sizeof(cuda::Row) / sizeof(float)}, scales.options());
    cuda::render_backward(
        make_params(in, moving, memory), {readable(out), readable(distance), readable(transmittance), nullptr},
        {d_out.const_data_ptr<float>(), d_distance.const_data_ptr<float>(), d_transmittance.const_data_ptr<float>(),
         reinterpret_cast<cuda::Row*>(writable(rows)), gaussian_grads(found), writable(std::get<7>(found)),
         writable(std::get<8>(found)), writable(std::get<9>(found))},
        c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return found;
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("render", &render);
    m.impl("render_backward", &render_backward);
}

}  // namespace nurec
