// SPDX-License-Identifier: Apache-2.0
// nurec_lite::render on the CPU: checks, allocation, and the driver.
#include <torch/library.h>

#include "torch_render_cpu.h"

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
    Four const found = empty_outputs(in);
    auto const& [out, distance, transmittance, median] = found;
    cpu::render_forward(make_inputs(in, moving),
                        {out.mutable_data_ptr<float>(), distance.mutable_data_ptr<float>(),
                         transmittance.mutable_data_ptr<float>(), median.mutable_data_ptr<float>()});
    return found;
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
    Tensor const d_t = outputs.d_distance_or_zeros();
    Ten const found = zero_gradients(in, ray_gradients);
    cpu::render_backward(
        make_inputs(in, moving), {readable(out), readable(distance), readable(transmittance), nullptr},
        {d_out.const_data_ptr<float>(), d_t.const_data_ptr<float>(), d_transmittance.const_data_ptr<float>()},
        {gaussian_grads(found), writable(std::get<7>(found)), writable(std::get<8>(found)),
         writable(std::get<9>(found))});
    return found;
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("render", &render);
    m.impl("render_backward", &render_backward);
}

}  // namespace nurec
