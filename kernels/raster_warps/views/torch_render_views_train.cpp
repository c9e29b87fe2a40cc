// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::render_views_train and ::render_views_train_backward, which CUDA alone has.
#ifdef NUREC_CUDA

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "../../project/torch_warp_tiles.h"
#include "torch_views.h"
#include "train.h"

namespace nurec {
namespace {

using at::Tensor;
using TrainedViews = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                                Tensor, Tensor, Tensor, Tensor>;
using SceneGradients = std::tuple<std::vector<Tensor>, Tensor, Tensor>;

// The tensors of nurec_lite.native.operators.render_views.SavedViews.
struct SavedViews {
    Tensor directions, delays, table, offsets, gaussians, row_index, first, list_index, fields, rows;
};

void check_node_rotations(at::TensorList node_rotations, at::TensorList scene, Tensor const& views) {
    check_group(node_rotations, "node_rotations", 2, "rotations, node");
    check_floats(node_rotations[0], "rotations", {views.size(0), -1, 4}, views.device());
    check_tensor(node_rotations[1], "node", at::kLong, {scene[2].size(1)}, views.device());
    check_range(node_rotations[1], "node", 0, node_rotations[0].size(1));
}

float const* checked_targets(Tensor const& targets, int64_t rays, bool is_camera) {
    check_floats(targets, "targets", {targets.size(0) ? rays : 0, 2}, targets.device());
    TORCH_CHECK_VALUE(!targets.size(0) || !is_camera, "targets has ", rays, " rows, but a camera's rays have none");
    return numbers_of<float>(targets);
}

cuda::Segments parts_in(SavedViews const& k, int64_t length) {
    return {k.list_index.size(0),
            length,
            k.first.mutable_data_ptr<int64_t>(),
            k.list_index.mutable_data_ptr<int>(),
            k.fields.mutable_data_ptr<float>(),
            k.rows.mutable_data_ptr<float>()};
}

SavedViews ray_tensors(Views const& p, Site const& site) {
    int64_t const r = p.rays.n;
    SavedViews k;
    k.directions = site.empty({r, 3}, at::kFloat);
    k.delays = site.empty({r}, at::kFloat), k.row_index = site.empty({p.scene.views * p.scene.g.n}, at::kInt);
    return k;
}

void keep_lists(SavedViews& k, Views const& p, Listed const& listed, int64_t length, Site& site) {
    int64_t const n = listed.table.size(0), most = cuda::max_segments(listed.capacity, n, length);
    k.table = listed.table, k.offsets = listed.offsets, k.gaussians = listed.gaussians, k.rows = listed.rows;
    k.first = site.empty({n + 1}, at::kLong), k.list_index = site.empty({most}, at::kInt);
    int const features = p.rays.is_camera ? 3 : 2;
    k.fields = site.empty({most, cuda::FEATURES + features, cuda::rays_with(features)}, at::kFloat);
    cuda::index_rows(p, listed.warp_tiles.v, listed.numbers, listed.begins.const_data_ptr<int64_t>(),
                     k.row_index.mutable_data_ptr<int>(), site.queue());
}

TrainedViews render_views_train(at::TensorList scene, at::TensorList node_rotations, Tensor const& views,
                                Tensor const& pose_grads, at::TensorList rays, Tensor const& targets,
                                at::IntArrayRef size, int64_t columns, bool moving, int64_t length, int64_t capacity,
                                int64_t depth_bits) {
    check_capacity(capacity);
    check_count(length, "length", MAX_CAPACITY);
    Views const p = {scene_of(scene, views), rays_of(rays, size, columns, moving, views)};
    check_node_rotations(node_rotations, scene, views);
    check_floats(pose_grads, "nudges", {pose_grads.size(0) ? views.size(0) : 0, 6}, views.device());
    Site site(views.device());
    SavedViews k = ray_tensors(p, site);
    cuda::RayArrays const made = {k.directions.mutable_data_ptr<float>(), k.delays.mutable_data_ptr<float>()};
    cuda::make_view_rays(p, made, site.queue());
    Tensor const all_need = site.empty({2}, at::kLong), needed = site.empty({views.size(0)}, at::kLong);
    int64_t const rooms[2] = {capacity < 0 ? -1 : MAX_CAPACITY, capacity};
    Listed const listed = list_views(p, made, checked_depth_bits(depth_bits), rooms, all_need, site);
    keep_lists(k, p, listed, length, site);
    cuda::share_required(p, listed.warp_tiles.warp_tiles, k.offsets.const_data_ptr<int64_t>(),
                         all_need.const_data_ptr<int64_t>() + 1, needed.mutable_data_ptr<int64_t>(), site.queue());
    RenderParams blended = blended_of(p, listed);
    blended.targets = checked_targets(targets, p.rays.n, p.rays.is_camera);
    Blended const found = unwritten_outputs(p.rays.n, blended.n_features, views.options());
    cuda::render_segments(blended, written(found), parts_in(k, length), site.queue());
    auto const& [out, distance, transmittance, median] = found;
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out,       distance,    transmittance, median,  needed,       k.directions, k.delays, k.table,
            k.offsets, k.gaussians, k.row_index,   k.first, k.list_index, k.fields,     k.rows};
}

// ---- gradients

SavedViews checked_saved(at::TensorList t, ViewedScene const& scene, int64_t features, bool moving, int64_t length) {
    check_group(t, "kept", 10,
                "directions, delays, table, offsets, gaussians, row_index, first, list_index, fields, rows");
    auto const device = t[0].device();
    check_tensor(t[0], "directions", at::kFloat, {-1, 3}, device);
    auto const r = t[0].size(0);
    check_tensor(t[1], "delays", at::kFloat, {r}, device);
    check_tensor(t[2], "table", at::kLong, {-1, cuda::rays_with(features)}, device);
    auto const n = t[2].size(0), most = cuda::max_segments(t[4].size(0), n, length);
    check_tensor(t[3], "offsets", at::kLong, {n + 1}, device);
    check_tensor(t[4], "gaussians", at::kInt, {-1}, device);
    check_tensor(t[5], "row_index", at::kInt, {scene.views * scene.g.n}, device);
    check_tensor(t[6], "first", at::kLong, {n + 1}, device);
    check_tensor(t[7], "list_index", at::kInt, {most}, device);
    check_tensor(t[8], "fields", at::kFloat, {most, cuda::FEATURES + features, cuda::rays_with(features)}, device);
    check_tensor(t[9], "rows", at::kFloat, {-1, cuda::gaussian_row_floats(moving, features)}, device);
    return {t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9]};
}

RenderParams blended_again(SavedViews const& k, int64_t features, bool moving) {
    RenderParams r = {};
    r.n_features = features, r.n_rays = k.directions.size(0), r.n_tiles = k.table.size(0);
    r.rays_per_tile = cuda::rays_with(features), r.moving = moving;
    r.directions = k.directions.const_data_ptr<float>(), r.delays = k.delays.const_data_ptr<float>();
    r.rays = k.table.const_data_ptr<int64_t>();
    r.offsets = k.offsets.const_data_ptr<int64_t>(), r.members = k.gaussians.const_data_ptr<int>();
    return r;
}

// Outputs and their gradients. A camera's kernels do without the distance if nothing depends on it.
struct UpstreamOutputs {
    RenderOutputs out;
    RenderGrads grads;
    Tensor d_distance;
};

UpstreamOutputs upstream_outputs(at::TensorList outputs, Tensor const& d_out, std::optional<Tensor> const& d_distance,
                                 Tensor const& d_transmittance, int64_t rays) {
    check_group(outputs, "outputs", 3, "out, distance, transmittance");
    auto const device = d_out.device();
    int64_t const c = outputs[0].size(1);
    check_floats(outputs[0], "out", {rays, c}, device);
    check_floats(outputs[1], "distance", {rays}, device);
    check_floats(outputs[2], "transmittance", {rays}, device);
    check_floats(d_out, "d_out", {rays, c}, device);
    check_floats(d_transmittance, "d_transmittance", {rays}, device);
    if (d_distance) check_floats(*d_distance, "d_distance", {rays}, device);
    UpstreamOutputs told = {};
    told.d_distance = d_distance ? *d_distance : c == 3 ? Tensor() : at::zeros_like(outputs[1]);
    auto const readable = [](Tensor const& t) { return const_cast<float*>(t.const_data_ptr<float>()); };
    told.out = {readable(outputs[0]), readable(outputs[1]), readable(outputs[2]), nullptr};
    told.grads.d_features = d_out.const_data_ptr<float>();
    told.grads.d_distance = told.d_distance.defined() ? told.d_distance.const_data_ptr<float>() : nullptr;
    told.grads.d_transmittance = d_transmittance.const_data_ptr<float>();
    return told;
}

// Gradients in the order of SceneArrays, none for frames; then those of rotations and nudges.
struct SceneGradTensors {
    std::vector<Tensor> scene;
    Tensor rotations, pose_grads;

    cuda::SceneGrads arrays(int64_t coefficients) const {
        auto const w = [](Tensor const& t) { return t.numel() ? t.mutable_data_ptr<float>() : nullptr; };
        auto const& s = scene;
        return {{w(s[0]), w(s[1]), w(s[2]), w(s[3]), w(s[4]), w(s[5]), w(s[6])},
                w(s[7]),
                w(rotations),
                {w(s[9]), w(s[10]), 3, 3 * (coefficients - 1)},
                w(s[11]),
                w(pose_grads)};
    }
};

SceneGradTensors empty_gradients(at::TensorList scene, Tensor const& rotations, int64_t views, bool is_camera,
                                 bool wants_pose_grad) {
    SceneGradTensors d;
    for (std::size_t k = 0; k < scene.size(); ++k) {
        bool const asked = k == 8 ? false : k == 11 ? !is_camera : k < 8 || is_camera;
        d.scene.push_back(asked ? at::empty_like(scene[k]) : at::empty({0}, rotations.options()));
    }
    d.rotations = is_camera ? at::zeros_like(rotations) : at::empty({0}, rotations.options());
    d.pose_grads = at::zeros({wants_pose_grad ? views : 0, 6}, rotations.options());
    return d;
}

SceneGradients render_views_train_backward(at::TensorList scene, at::TensorList node_rotations, Tensor const& views,
                                           Tensor const& targets, bool moving, int64_t length, at::TensorList kept,
                                           at::TensorList outputs, Tensor const& d_out,
                                           std::optional<Tensor> const& d_distance, Tensor const& d_transmittance,
                                           bool wants_pose_grad) {
    check_count(length, "length", MAX_CAPACITY);
    Views p = {scene_of(scene, views), {}};
    check_node_rotations(node_rotations, scene, views);
    int64_t const c = d_out.size(1);
    TORCH_CHECK_VALUE(c == 2 || c == 3, "d_out has ", c, " columns, but must have 3 (of images) or 2 (of sweeps)");
    p.rays.is_camera = c == 3, p.rays.moving = moving || c == 2;
    SavedViews const k = checked_saved(kept, p.scene, c, p.rays.moving, length);
    UpstreamOutputs const told = upstream_outputs(outputs, d_out, d_distance, d_transmittance, k.directions.size(0));
    Site site(views.device());
    SceneGradTensors const d =
        empty_gradients(scene, node_rotations[0], views.size(0), p.rays.is_camera, wants_pose_grad);
    RenderParams blended = blended_again(k, c, p.rays.moving);
    blended.targets = checked_targets(targets, blended.n_rays, p.rays.is_camera);
    Tensor const moments = at::zeros({k.rows.size(0), cuda::MOMENT_FLOATS}, d_out.options());
    auto* const rows = reinterpret_cast<cuda::MomentRow*>(moments.mutable_data_ptr<float>());
    cuda::accumulate_segments(blended, told.out, told.grads, parts_in(k, length), rows, site.queue());
    cuda::RowSums const sums = {k.row_index.const_data_ptr<int>(), rows, node_rotations[0].size(1),
                                node_rotations[1].const_data_ptr<int64_t>()};
    cuda::differentiate_views(p, sums, d.arrays(p.scene.coefficients), site.queue());
    if (p.rays.is_camera) cuda::differentiate_colours(p, sums, d.arrays(p.scene.coefficients), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {d.scene, d.rotations, d.pose_grads};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("render_views_train", &render_views_train);
    m.impl("render_views_train_backward", &render_views_train_backward);
}

}  // namespace nurec

#endif
