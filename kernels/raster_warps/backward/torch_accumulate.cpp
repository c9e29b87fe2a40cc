// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::render_backward_accumulate, which CUDA alone has.
#ifdef NUREC_CUDA

#include <torch/library.h>

#include "../../common/torch_site.h"
#include "../blend/torch_segments.h"
#include "gaussian_backward.h"

namespace nurec {
namespace {

using at::Tensor;
using Accumulated = std::tuple<Tensor, Tensor, std::vector<Tensor>>;

struct RayGrads {
    std::vector<Tensor> tensors;  // of origins and directions; empty: not asked for

    float* at(std::size_t k) const { return tensors.empty() ? nullptr : tensors[k].mutable_data_ptr<float>(); }
};

RayGrads ray_grads_of(RenderTensors const& in, bool wanted) {
    if (!wanted) return {};
    TORCH_CHECK_VALUE(in.origins.size(0) == in.directions.size(0),
                      "origins has no rows, but gradients of rays are asked for");
    return {{at::zeros_like(in.origins), at::zeros_like(in.directions)}};
}

Accumulated render_backward_accumulate(at::TensorList gaussians, Tensor const& features, at::TensorList rays,
                                       at::TensorList lists, Tensor const& view, bool moving, int64_t length,
                                       at::TensorList kept, at::TensorList outputs, Tensor const& d_out,
                                       std::optional<Tensor> const& d_distance, Tensor const& d_transmittance,
                                       bool of_features, bool of_rays) {
    RenderTensors const in = render_tensors(gaussians, features, rays, lists, view);
    check_warp_tiles(in);
    check_group(kept, "kept", 4, "first, list_index, fields, rows");
    OutputTensors const given = checked_outputs(in, outputs, d_out, d_distance, d_transmittance);
    bool const is_camera = features.size(1) == 3;
    TORCH_CHECK_VALUE(is_camera || !of_features,
                      "of_features is about a camera's features; those of a lidar are among the moments");
    Site site(view.device());
    int64_t const n = in.g.scales.size(0);
    Tensor const grad_accum = site.empty({cuda::grad_accum_floats(n)}, at::kFloat);
    Tensor const d_features = site.empty({of_features ? n : 0, features.size(1)}, at::kFloat);
    RayGrads const d_rays = ray_grads_of(in, of_rays);
    bool const without_distance = is_camera && !of_rays;  // there are kernels for that
    Tensor const d_t = d_distance ? *d_distance : without_distance ? Tensor() : at::zeros_like(given.distance);
    RenderGrads d = grads_of(given, d_t, GradientTensors{});
    d.features = of_features ? d_features.mutable_data_ptr<float>() : nullptr;
    d.origins = d_rays.at(0), d.directions = d_rays.at(1);
    float* const rows = grad_accum.mutable_data_ptr<float>();
    cuda::render_backward_accumulate(params_of(in, moving), outputs_of(given), d,
                                     parts_of({kept[0], kept[1], kept[2], kept[3]}, length),
                                     reinterpret_cast<cuda::MomentRow*>(rows),
                                     reinterpret_cast<uint8_t*>(rows + cuda::MOMENT_FLOATS * n), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {grad_accum, d_features, d_rays.tensors};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("render_backward_accumulate", &render_backward_accumulate);
}

}  // namespace nurec

#endif
