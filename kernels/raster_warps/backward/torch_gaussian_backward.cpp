// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::render_backward_accumulate and ::gaussian_backward, which CUDA alone has.
#ifdef NUREC_CUDA

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cstdint>

#include "../../common/torch_check.h"
#include "../../common/torch_site.h"
#include "../blend/torch_segments.h"
#include "gaussian_backward.h"

namespace nurec {
namespace {

using at::Tensor;
using UpstreamTensors = c10::List<std::optional<Tensor>>;
using GradTensors = std::tuple<std::vector<Tensor>, std::vector<Tensor>, Tensor>;

constexpr int64_t LIDAR_COLUMNS = 2;  // of a lidar's logits without its opacity

float const* floats_in(Tensor const& t) {
    return t.numel() ? t.const_data_ptr<float>() : nullptr;
}

float* floats_to(Tensor const& t) {
    return t.numel() ? t.mutable_data_ptr<float>() : nullptr;
}

void check_floats_of(Tensor const& t, char const* name, std::initializer_list<int64_t> shape, at::Device device) {
    check_tensor(t, name, at::kFloat, shape, device);
    check_finite(t, name);
}

// The tensors of nurec_lite.native.operators.gaussian_backward.BackwardScene and .MovedArrays.
cuda::BackwardScene backward_scene(at::TensorList t, at::TensorList moved, int64_t views) {
    check_group(t, "scene", 7, "means, quats, scales, opacities, lidar_opacities, lidar, stored_quats");
    check_group(moved, "moved", 4, "means, quats, velocities, rotations");
    auto const device = t[0].device();
    check_floats_of(t[2], "scales", {-1, 3}, device);
    check_positive(t[2], "scales");
    check_floats_of(moved[0], "moved means", {views, -1, 3}, device);
    int64_t const n = t[2].size(0), a = moved[0].size(1), own = t[4].size(0) ? n : 0, stored = t[6].size(0) ? n : 0;
    TORCH_CHECK_VALUE(a <= n, "moved means has ", a, " Gaussians, but there are ", n);
    int64_t const rows = t[0].size(0) == n - a ? n - a : n;
    check_floats_of(t[0], "means", {rows, 3}, device);
    check_floats_of(t[1], "quats", {rows, 4}, device);
    check_floats_of(t[3], "opacities", {n}, device);
    check_floats_of(t[4], "lidar_opacities", {own}, device);
    check_floats_of(t[5], "lidar", {stored || t[5].size(0) ? n : 0, 2}, device);
    check_floats_of(t[6], "stored_quats", {stored, 4}, device);
    check_floats_of(moved[1], "moved quats", {views, a, 4}, device);
    check_floats_of(moved[2], "velocities", {views, a, 3}, device);
    check_floats_of(moved[3], "rotations", {views, -1, 4}, device);
    return {n,
            n - a,
            moved[3].size(1),
            floats_in(t[0]),
            floats_in(t[1]),
            floats_in(moved[0]),
            floats_in(moved[1]),
            floats_in(moved[2]),
            floats_in(t[2]),
            floats_in(t[3]),
            own ? floats_in(t[4]) : floats_in(t[3]),
            floats_in(t[5]),
            floats_in(t[6])};
}

cuda::BackwardViews backward_views(at::TensorList rows, UpstreamTensors const& grad_accum,
                                   c10::List<bool> const& by_lidar, c10::List<bool> const& moving,
                                   c10::List<bool> const& wants_pose_grad, int64_t n, at::Device device) {
    std::size_t const v = rows.size();
    check_count(int64_t(v), "number of views", cuda::MAX_BACKWARD_VIEWS);
    TORCH_CHECK_VALUE(
        grad_accum.size() == v && by_lidar.size() == v && moving.size() == v && wants_pose_grad.size() == v,
        "there are ", v, " views, but grad_accum, by_lidar, moving and wants_pose_grad have ", grad_accum.size(), ", ",
        by_lidar.size(), ", ", moving.size(), " and ", wants_pose_grad.size());
    cuda::BackwardViews found = {int64_t(v), {}};
    for (std::size_t k = 0; k < v; ++k) {
        check_floats_of(rows[k], "a row of views", {VIEW_NUMBERS}, device);
        std::optional<Tensor> const one = grad_accum.get(k);
        if (one) check_tensor(*one, "grad_accum", at::kFloat, {cuda::grad_accum_floats(n)}, device);
        float const* const at = one ? floats_in(*one) : nullptr;
        TORCH_CHECK_VALUE(reinterpret_cast<std::uintptr_t>(at) % 16 == 0,
                          "grad_accum begins in the middle of 16 bytes");
        found.view[k] = {reinterpret_cast<ViewRow<float> const*>(floats_in(rows[k])),
                         reinterpret_cast<cuda::MomentRow const*>(at),
                         reinterpret_cast<uint8_t const*>(at ? at + cuda::MOMENT_FLOATS * n : nullptr),
                         by_lidar[k],
                         moving[k],
                         wants_pose_grad[k]};
    }
    return found;
}

float const* upstream_array(UpstreamTensors const& given, std::size_t k, char const* name,
                            std::initializer_list<int64_t> shape, at::Device device) {
    std::optional<Tensor> const t = given.get(k);
    if (!t) return nullptr;
    check_tensor(*t, name, at::kFloat, shape, device);
    return floats_in(*t);
}

// An array of so many rows, or one number.
cuda::UpstreamValues upstream_values(UpstreamTensors const& given, std::size_t k, char const* name, int64_t numbers,
                                     at::Device device) {
    std::optional<Tensor> const t = given.get(k);
    if (!t) return {nullptr, false};
    bool const one = t->numel() == 1;
    TORCH_CHECK_VALUE(one || t->numel() == numbers, name, " has ", t->numel(), " numbers, but must have ", numbers,
                      ", or one for all");
    check_tensor(*t, name, at::kFloat,
                 one ? std::initializer_list<int64_t>{1} : std::initializer_list<int64_t>{numbers}, device);
    return {floats_in(*t), one};
}

// The tensors of nurec_lite.native.operators.gaussian_backward.MovedArrays, one view after another.
void set_upstream_moved(cuda::UpstreamGrads& given, UpstreamTensors const& t, cuda::BackwardScene const& scene,
                        int64_t views, at::Device device) {
    TORCH_CHECK_VALUE(int64_t(t.size()) == 4 * views, "upstream_moved has ", t.size(),
                      " tensors, but must have 4 of each of ", views, " views");
    int64_t const a = scene.n - scene.still;
    for (std::size_t v = 0; v < std::size_t(views); ++v)
        given.view[v] = {upstream_array(t, 4 * v, "upstream means", {a, 3}, device),
                         upstream_array(t, 4 * v + 1, "upstream quats", {a, 4}, device),
                         upstream_array(t, 4 * v + 2, "upstream velocities", {a, 3}, device),
                         upstream_array(t, 4 * v + 3, "upstream rotations", {scene.nodes, 4}, device)};
}

// The tensors of nurec_lite.native.operators.gaussian_backward.UpstreamGrads.
cuda::UpstreamGrads upstream_grads(UpstreamTensors const& t, cuda::BackwardScene const& scene, bool seen_only,
                                   MaybeTensor const& blocks, at::Device device) {
    TORCH_CHECK_VALUE(t.size() == 6, "upstream has ", t.size(), " tensors, but must have 6");
    int64_t const n = scene.n, s = scene.still;
    return {upstream_array(t, 0, "upstream still_means", {s, 3}, device),
            upstream_array(t, 1, "upstream still_quats", {s, 4}, device),
            upstream_values(t, 2, "upstream scales", 3 * n, device),
            upstream_values(t, 3, "upstream opacities", n, device),
            upstream_values(t, 4, "upstream lidar_opacities", n, device),
            upstream_values(t, 5, "upstream lidar", 2 * n, device),
            {},
            seen_only,
            checked_blocks(blocks, n, device)};
}

GradTensors gaussian_backward(at::TensorList arrays, at::TensorList moved, at::TensorList rows,
                              UpstreamTensors const& grad_accum, c10::List<bool> const& by_lidar,
                              c10::List<bool> const& moving, c10::List<bool> const& wants_pose_grad,
                              UpstreamTensors const& given, UpstreamTensors const& given_moved,
                              c10::List<bool> const& asked, int64_t columns, bool seen_only,
                              MaybeTensor const& blocks) {
    Tensor const turns = aligned(arrays[6]);
    std::vector<Tensor> kept(arrays.begin(), arrays.end());
    kept[6] = turns;
    cuda::BackwardScene const scene = backward_scene(kept, moved, int64_t(rows.size()));
    cuda::BackwardViews const views =
        backward_views(rows, grad_accum, by_lidar, moving, wants_pose_grad, scene.n, turns.device());
    bool const own = arrays[4].size(0) > 0, stored = scene.stored_quats != nullptr;
    TORCH_CHECK_VALUE(asked.size() == 6, "asked has ", asked.size(), " values, but must have 6");
    TORCH_CHECK_VALUE(!scene.n || columns == (stored ? LIDAR_COLUMNS + own : 0), "columns is ", columns,
                      ", but must be ", stored ? LIDAR_COLUMNS + own : 0);
    Site site(turns.device());
    auto const made = [&](std::size_t k, at::IntArrayRef shape) {
        return site.empty(asked[k] ? shape : at::IntArrayRef({0}), at::kFloat);
    };
    int64_t const n = scene.n;
    std::vector<Tensor> const found = {made(0, {n, 3}), made(1, {n, 4}),
                                       made(2, {n, 3}), made(3, {n}),
                                       made(4, {n}),    made(5, {n, columns ? columns : LIDAR_COLUMNS})};
    std::vector<Tensor> d_moved;
    for (Tensor const& one : moved) d_moved.push_back(at::empty_like(one));
    bool any = false;
    for (bool const one : wants_pose_grad) any = any || one;
    Tensor const pose_grads = site.empty({any ? views.n : 0, POSE_DELTA_FLOATS}, at::kFloat);
    cuda::EpilogueGrads const out = {columns,
                                     floats_to(found[0]),
                                     floats_to(found[1]),
                                     floats_to(found[2]),
                                     floats_to(found[3]),
                                     floats_to(found[4]),
                                     floats_to(found[5]),
                                     floats_to(d_moved[0]),
                                     floats_to(d_moved[1]),
                                     floats_to(d_moved[2]),
                                     floats_to(d_moved[3]),
                                     floats_to(pose_grads)};
    cuda::UpstreamGrads elsewhere = upstream_grads(given, scene, seen_only, blocks, turns.device());
    set_upstream_moved(elsewhere, given_moved, scene, views.n, turns.device());
    cuda::gaussian_backward(scene, views, elsewhere, out, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {found, d_moved, pose_grads};
}

// ---- moments

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
                                       bool of_features, bool of_rays, MaybeTensor const& blocks) {
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
    cuda::render_backward_accumulate(params_of(in, moving, blocks), outputs_of(given), d,
                                     parts_of({kept[0], kept[1], kept[2], kept[3]}, length),
                                     reinterpret_cast<cuda::MomentRow*>(rows),
                                     reinterpret_cast<uint8_t*>(rows + cuda::MOMENT_FLOATS * n), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {grad_accum, d_features, d_rays.tensors};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("render_backward_accumulate", &render_backward_accumulate);
    m.impl("gaussian_backward", &gaussian_backward);
}

}  // namespace nurec

#endif
