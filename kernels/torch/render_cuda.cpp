// SPDX-License-Identifier: Apache-2.0
// nurec_lite::render on CUDA: checks, allocation, and the driver.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "../cuda/render.h"
#include "check.h"
#include "cuda_memory.h"

namespace nurec {
namespace {

using at::Tensor;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Eight = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

constexpr int64_t BLOCK_RAYS = 256;  // rays of a tile at most

cuda::RenderParams make_params(Tensor const& means, Tensor const& quats, Tensor const& scales, Tensor const& opacities,
                               Tensor const& velocities, Tensor const& features, Tensor const& origins,
                               Tensor const& directions, Tensor const& delays, Tensor const& rays,
                               Tensor const& offsets, Tensor const& gaussians, bool moving, Memory& memory) {
    TORCH_CHECK_VALUE(rays.size(1) <= BLOCK_RAYS, "rays has ", rays.size(1), " rays a tile, but must have at most ",
                      BLOCK_RAYS);
    return {means.size(0),
            features.size(1),
            directions.size(0),
            rays.size(0),
            rays.size(1),
            means.const_data_ptr<float>(),
            quats.const_data_ptr<float>(),
            scales.const_data_ptr<float>(),
            opacities.const_data_ptr<float>(),
            velocities.const_data_ptr<float>(),
            features.const_data_ptr<float>(),
            origins.const_data_ptr<float>(),
            directions.const_data_ptr<float>(),
            delays.const_data_ptr<float>(),
            rays.const_data_ptr<int64_t>(),
            offsets.const_data_ptr<int64_t>(),
            gaussians.const_data_ptr<int64_t>(),
            moving,
            memory.allocator().array<cuda::Row>(means.size(0))};
}

Four render(Tensor const& means, Tensor const& quats, Tensor const& scales, Tensor const& opacities,
            Tensor const& velocities, Tensor const& features, Tensor const& origins, Tensor const& directions,
            Tensor const& delays, Tensor const& rays, Tensor const& offsets, Tensor const& gaussians, bool moving) {
    check_render(means, quats, scales, opacities, velocities, features, origins, directions, delays, rays, offsets,
                 gaussians);
    c10::cuda::CUDAGuard const guard(means.device());
    Memory memory(means.device());
    auto const r = directions.size(0), c = features.size(1);
    Tensor out = at::zeros({r, c}, features.options()), distance = at::zeros({r}, features.options());
    Tensor transmittance = at::ones({r}, features.options()), median = at::zeros({r}, features.options());
    cuda::render_forward(make_params(means, quats, scales, opacities, velocities, features, origins, directions, delays,
                                     rays, offsets, gaussians, moving, memory),
                         {out.mutable_data_ptr<float>(), distance.mutable_data_ptr<float>(),
                          transmittance.mutable_data_ptr<float>(), median.mutable_data_ptr<float>()},
                         c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out, distance, transmittance, median};
}

Eight render_backward(Tensor const& means, Tensor const& quats, Tensor const& scales, Tensor const& opacities,
                      Tensor const& velocities, Tensor const& features, Tensor const& origins, Tensor const& directions,
                      Tensor const& delays, Tensor const& rays, Tensor const& offsets, Tensor const& gaussians,
                      bool moving, Tensor const& out, Tensor const& distance, Tensor const& transmittance,
                      Tensor const& d_out, Tensor const& d_distance, Tensor const& d_transmittance,
                      bool ray_gradients) {
    check_render(means, quats, scales, opacities, velocities, features, origins, directions, delays, rays, offsets,
                 gaussians);
    check_outputs(features, directions, out, distance, transmittance, d_out, d_distance, d_transmittance);
    c10::cuda::CUDAGuard const guard(means.device());
    Memory memory(means.device());
    auto like = [](Tensor const& t) { return at::zeros_like(t); };
    Tensor d_means = like(means), d_quats = like(quats), d_scales = like(scales), d_opacities = like(opacities);
    Tensor d_velocities = like(velocities), d_features = like(features);
    Tensor d_origins = ray_gradients ? like(origins) : at::empty({0}, origins.options());
    Tensor d_directions = ray_gradients ? like(directions) : at::empty({0}, origins.options());
    Tensor const rows = at::zeros({means.size(0), sizeof(cuda::Row) / sizeof(float)}, means.options());
    auto ptr = [](Tensor const& t) { return t.numel() ? t.mutable_data_ptr<float>() : nullptr; };
    // the driver only reads the forward pass's outputs
    auto read = [](Tensor const& t) { return const_cast<float*>(t.const_data_ptr<float>()); };
    cuda::render_backward(
        make_params(means, quats, scales, opacities, velocities, features, origins, directions, delays, rays, offsets,
                    gaussians, moving, memory),
        {read(out), read(distance), read(transmittance), nullptr},
        {d_out.const_data_ptr<float>(), d_distance.const_data_ptr<float>(), d_transmittance.const_data_ptr<float>(),
         reinterpret_cast<cuda::Row*>(ptr(rows)), ptr(d_means), ptr(d_quats), ptr(d_scales), ptr(d_opacities),
         ptr(d_velocities), ptr(d_features), ptr(d_origins), ptr(d_directions)},
        c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {d_means, d_quats, d_scales, d_opacities, d_velocities, d_features, d_origins, d_directions};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("render", &render);
    m.impl("render_backward", &render_backward);
}

}  // namespace nurec
