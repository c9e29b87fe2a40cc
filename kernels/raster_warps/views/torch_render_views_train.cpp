// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::render_views_train, ::render_views_accumulate and ::render_views_colour_backward, which CUDA
// alone has.
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
                                Tensor, Tensor, Tensor, Tensor, Tensor>;

// The tensors of nurec_lite.native.operators.render_views.SavedViews.
struct SavedViews {
    Tensor directions, delays, table, offsets, gaussians, numbers, counts, first, list_index, fields, rows;
};

float const* checked_targets(Tensor const& targets, int64_t rays, bool is_camera) {
    check_floats(targets, "targets", {targets.size(0) ? rays : 0, 2}, targets.device());
    TORCH_CHECK_VALUE(!targets.size(0) || !is_camera, "targets has ", rays, " rows, but a camera's rays have none");
    return numbers_of<float>(targets);
}

cuda::Segments segments_in(SavedViews const& k, int64_t length) {
    return {k.list_index.size(0),
            length,
            k.first.mutable_data_ptr<int64_t>(),
            k.list_index.mutable_data_ptr<int>(),
            k.fields.mutable_data_ptr<float>(),
            k.rows.mutable_data_ptr<float>()};
}

SavedViews ray_tensors(Views const& p, Site const& site) {
    SavedViews k;
    k.directions = site.empty({p.rays.n, 3}, at::kFloat), k.delays = site.empty({p.rays.n}, at::kFloat);
    k.counts = site.empty({2}, at::kLong);
    return k;
}

void keep_lists(SavedViews& k, Views const& p, Listed const& listed, int64_t length, Site& site) {
    int64_t const n = listed.table.size(0), most = cuda::max_segments(listed.capacity, n, length);
    k.table = listed.table, k.offsets = listed.offsets, k.gaussians = listed.gaussians;
    k.numbers = listed.numbers, k.rows = listed.rows;
    k.first = site.empty({n + 1}, at::kLong), k.list_index = site.empty({most}, at::kInt);
    int const features = p.rays.is_camera ? 3 : 2;
    k.fields = site.empty({most, cuda::FEATURES + features, cuda::rays_with(features)}, at::kFloat);
}

TrainedViews render_views_train(at::TensorList scene, Tensor const& views, at::TensorList rays, Tensor const& targets,
                                at::IntArrayRef size, int64_t columns, bool moving, bool lenses, int64_t length,
                                int64_t capacity, int64_t depth_bits) {
    check_capacity(capacity);
    check_count(length, "length", MAX_CAPACITY);
    Views const p = {scene_of(scene, views), rays_of(rays, size, columns, moving, lenses, views)};
    Site site(views.device());
    SavedViews k = ray_tensors(p, site);
    cuda::RayArrays const made = {k.directions.mutable_data_ptr<float>(), k.delays.mutable_data_ptr<float>()};
    cuda::make_view_rays(p, made, site.queue());
    Tensor const needed = site.empty({views.size(0)}, at::kLong);
    int64_t const capacities[2] = {capacity < 0 ? -1 : MAX_CAPACITY, capacity};
    Listed const listed = list_views(p, made, checked_depth_bits(depth_bits), capacities, k.counts, site);
    keep_lists(k, p, listed, length, site);
    cuda::share_required(p, listed.warp_tiles.warp_tiles, k.offsets.const_data_ptr<int64_t>(),
                         k.counts.const_data_ptr<int64_t>() + 1, needed.mutable_data_ptr<int64_t>(), site.queue());
    RenderParams blended = blended_of(p, listed);
    blended.targets = checked_targets(targets, p.rays.n, p.rays.is_camera);
    Blended const found = unwritten_outputs(p.rays.n, blended.n_features, views.options());
    cuda::render_segments(blended, written(found), segments_in(k, length), site.queue());
    auto const& [out, distance, transmittance, median] = found;
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out,       distance,    transmittance, median,   needed,  k.directions, k.delays, k.table,
            k.offsets, k.gaussians, k.numbers,     k.counts, k.first, k.list_index, k.fields, k.rows};
}

// ---- gradients

SavedViews checked_saved(at::TensorList t, int64_t features, bool moving, int64_t length) {
    check_group(t, "kept", 11,
                "directions, delays, table, offsets, gaussians, numbers, counts, first, list_index, fields, rows");
    auto const device = t[0].device();
    check_tensor(t[0], "directions", at::kFloat, {-1, 3}, device);
    check_tensor(t[1], "delays", at::kFloat, {t[0].size(0)}, device);
    check_tensor(t[2], "table", at::kLong, {-1, cuda::rays_with(features)}, device);
    auto const n = t[2].size(0), most = cuda::max_segments(t[4].size(0), n, length);
    check_tensor(t[3], "offsets", at::kLong, {n + 1}, device);
    check_tensor(t[4], "gaussians", at::kInt, {-1}, device);
    check_tensor(t[10], "rows", at::kFloat, {-1, cuda::gaussian_row_floats(moving, features)}, device);
    check_tensor(t[5], "numbers", at::kInt, {t[10].size(0)}, device);
    check_tensor(t[6], "counts", at::kLong, {2}, device);
    check_tensor(t[7], "first", at::kLong, {n + 1}, device);
    check_tensor(t[8], "list_index", at::kInt, {most}, device);
    check_tensor(t[9], "fields", at::kFloat, {most, cuda::FEATURES + features, cuda::rays_with(features)}, device);
    return {t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10]};
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

cuda::ViewRows rows_of(SavedViews const& k) {
    return {k.numbers.size(0), k.counts.const_data_ptr<int64_t>(),
            reinterpret_cast<uint32_t const*>(k.numbers.const_data_ptr<int>())};
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
    UpstreamOutputs given = {};
    given.d_distance = d_distance ? *d_distance : c == 3 ? Tensor() : at::zeros_like(outputs[1]);
    auto const readable = [](Tensor const& t) { return const_cast<float*>(t.const_data_ptr<float>()); };
    given.out = {readable(outputs[0]), readable(outputs[1]), readable(outputs[2]), nullptr};
    given.grads.d_features = d_out.const_data_ptr<float>();
    given.grads.d_distance = given.d_distance.defined() ? given.d_distance.const_data_ptr<float>() : nullptr;
    given.grads.d_transmittance = d_transmittance.const_data_ptr<float>();
    return given;
}

cuda::ViewMoments moments_in(Tensor const& grad_accum, int64_t views, int64_t n) {
    check_tensor(grad_accum, "grad_accum", at::kFloat, {views, cuda::grad_accum_floats(n)}, grad_accum.device());
    return {views, n, const_cast<float*>(grad_accum.const_data_ptr<float>())};
}

std::tuple<Tensor, Tensor> render_views_accumulate(at::TensorList scene, Tensor const& views, Tensor const& targets,
                                                   bool moving, int64_t length, at::TensorList kept,
                                                   at::TensorList outputs, Tensor const& d_out,
                                                   std::optional<Tensor> const& d_distance,
                                                   Tensor const& d_transmittance, bool of_features) {
    check_count(length, "length", MAX_CAPACITY);
    ViewedScene const seen = scene_of(scene, views);
    int64_t const c = d_out.size(1), n = seen.g.n;
    TORCH_CHECK_VALUE(c == 2 || c == 3, "d_out has ", c, " columns, but must have 3 (of images) or 2 (of sweeps)");
    bool const is_camera = c == 3;
    TORCH_CHECK_VALUE(is_camera || !of_features, "of_features is about the colours of images");
    SavedViews const k = checked_saved(kept, c, moving || !is_camera, length);
    UpstreamOutputs const given = upstream_outputs(outputs, d_out, d_distance, d_transmittance, k.directions.size(0));
    Site site(views.device());
    Tensor const grad_accum = site.empty({seen.views, cuda::grad_accum_floats(n)}, at::kFloat);
    Tensor const d_features = site.empty({of_features ? seen.views : 0, n, 3}, at::kFloat);
    Tensor const moments = site.empty({k.rows.size(0), cuda::MOMENT_FLOATS}, at::kFloat);
    RenderParams blended = blended_again(k, c, moving || !is_camera);
    blended.targets = checked_targets(targets, blended.n_rays, is_camera);
    auto* const rows = reinterpret_cast<cuda::MomentRow*>(moments.mutable_data_ptr<float>());
    cuda::ViewMoments const to = moments_in(grad_accum, seen.views, n);
    cuda::clear_view_moments(rows_of(k), rows, to, site.queue());
    cuda::accumulate_segments(blended, given.out, given.grads, segments_in(k, length), rows, site.queue());
    cuda::scatter_view_moments(rows_of(k), rows, to, site.queue());
    if (of_features) cuda::gather_view_features(to, d_features.mutable_data_ptr<float>(), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {grad_accum, d_features};
}

cuda::Nodes nodes_of(at::TensorList node_rotations, at::TensorList scene, Tensor const& views) {
    check_group(node_rotations, "node_rotations", 2, "rotations, node");
    check_floats(node_rotations[0], "rotations", {views.size(0), -1, 4}, views.device());
    check_tensor(node_rotations[1], "node", at::kLong, {scene[2].size(1)}, views.device());
    check_range(node_rotations[1], "node", 0, node_rotations[0].size(1));
    return {node_rotations[0].size(1), node_rotations[1].const_data_ptr<int64_t>()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> render_views_colour_backward(at::TensorList scene,
                                                                                at::TensorList node_rotations,
                                                                                Tensor const& views,
                                                                                Tensor const& grad_accum) {
    ViewedScene const seen = scene_of(scene, views);
    cuda::Nodes const nodes = nodes_of(node_rotations, scene, views);
    Site site(views.device());
    Tensor const still_means = at::empty_like(scene[0]), means = at::empty_like(scene[2]);
    Tensor const rotations = at::zeros_like(node_rotations[0]);
    Tensor const sh0 = at::empty_like(scene[9]), sh_rest = at::empty_like(scene[10]);
    auto const write = [](Tensor const& t) { return t.numel() ? t.mutable_data_ptr<float>() : nullptr; };
    cuda::ColourGrads const d = {write(still_means),
                                 write(means),
                                 write(rotations),
                                 {write(sh0), write(sh_rest), 3, 3 * (seen.coefficients - 1)}};
    cuda::differentiate_colours(seen, moments_in(grad_accum, seen.views, seen.g.n), nodes, d, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {still_means, means, rotations, sh0, sh_rest};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("render_views_train", &render_views_train);
    m.impl("render_views_accumulate", &render_views_accumulate);
    m.impl("render_views_colour_backward", &render_views_colour_backward);
}

}  // namespace nurec

#endif
