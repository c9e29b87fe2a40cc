// SPDX-License-Identifier: Apache-2.0
// Shared checks of the operators of several views, and the lists of all views.
#pragma once

#include "../../common/sort.h"
#include "../../common/torch_cells.h"
#include "../../common/torch_gaussians.h"
#include "../../common/torch_site.h"
#include "../../project/torch_render.h"
#include "../../project/torch_warp_tiles.h"
#include "views.h"

namespace nurec {

constexpr int64_t MAX_VIEWS = 1 << 15, MAX_INSTANCES = int64_t(1) << 31;

template <class Number>
auto* numbers_of(at::Tensor const& t) {
    return t.numel() ? t.const_data_ptr<Number>() : nullptr;
}

inline void check_floats(at::Tensor const& t, char const* name, std::initializer_list<int64_t> shape,
                         at::Device device) {
    check_tensor(t, name, at::kFloat, shape, device);
    check_finite(t, name);
}

// The tensors of nurec_lite.native.operators.render_views.SceneArrays.
inline ViewedScene scene_of(at::TensorList t, at::Tensor const& views) {
    check_group(t, "scene", 12,
                "still_means, still_quats, means, quats, velocities, scales, opacities, moving_opacities, frames, sh0, "
                "sh_rest, lidar");
    auto const device = views.device();
    check_floats(views, "views", {-1, VIEW_NUMBERS}, device);
    auto const v = views.size(0);
    check_count(v, "rows of views", MAX_VIEWS);
    check_floats(t[0], "still_means", {-1, 3}, device);
    check_floats(t[2], "means", {v, -1, 3}, device);
    auto const s = t[0].size(0), a = t[2].size(1), n = s + a;
    check_floats(t[1], "still_quats", {s, 4}, device);
    check_floats(t[3], "quats", {v, a, 4}, device);
    check_floats(t[4], "velocities", {v, a, 3}, device);
    check_floats(t[5], "scales", {n, 3}, device);
    check_positive(t[5], "scales");
    check_floats(t[6], "opacities", {s}, device);
    check_floats(t[7], "moving_opacities", {v, a}, device);
    check_floats(t[8], "frames", {v, a, 4}, device);
    check_floats(t[9], "sh0", {n, 1, 3}, device);
    check_floats(t[10], "sh_rest", {n, -1, 3}, device);
    check_floats(t[11], "lidar", {n, 2}, device);
    auto const c = 1 + t[10].size(1);
    TORCH_CHECK_VALUE(c == 1 || c == 4 || c == 9 || c == 16, "sh_rest has ", c - 1,
                      " coefficients, but must have 0, 3, 8 or 15 (degree 0 to 3)");
    TORCH_CHECK_VALUE(v * n < MAX_INSTANCES, "there are ", v, " views of ", n,
                      " Gaussians, but their product must be below ", MAX_INSTANCES, ": give fewer views");
    auto const array = [](at::Tensor const& x) { return numbers_of<float>(x); };
    auto const* rows = reinterpret_cast<ViewRow<float> const*>(views.const_data_ptr<float>());
    Gaussians const g = {n,           s,           array(t[0]), array(t[1]), array(t[2]),
                         array(t[3]), array(t[4]), array(t[5]), array(t[6]), &rows->centre};
    return {g, array(t[7]), array(t[8]), {array(t[9]), array(t[10]), 3, 3 * (c - 1)}, c, array(t[11]), rows, v};
}

// The tensors of nurec_lite.native.operators.render_views.SensorRays.
inline ViewedRays rays_of(at::TensorList t, at::IntArrayRef size, int64_t columns, bool moving, bool lenses,
                          at::Tensor const& views) {
    check_group(t, "rays", 4, "directions, fractions, edges, begins");
    auto const device = views.device();
    ViewedRays r = {};
    r.is_camera = !size.empty(), r.moving = moving || !r.is_camera, r.lenses = lenses;
    TORCH_CHECK_VALUE(r.is_camera || !lenses, "lenses are about cameras, but these are views of a lidar");
    check_floats(t[0], "directions", {-1, 3}, device);
    check_floats(t[1], "fractions", {-1}, device);
    auto const n = t[0].size(0), f = t[1].size(0);
    TORCH_CHECK_VALUE(f == n || f == 1, "fractions has shape ", t[1].sizes(), ", but must have [", n,
                      "], or [1] if all rays are alike");
    r.alike = f == 1, r.directions = numbers_of<float>(t[0]), r.fractions = numbers_of<float>(t[1]);
    if (r.is_camera) {
        TORCH_CHECK_VALUE(size.size() == 4, "size has ", size.size(), " numbers, but must have 4 or none");
        for (int64_t const s : size) check_count(s, "size", MAX_SIDE);
        TORCH_CHECK_VALUE(size[2] * size[3] == WARP_TILE_RAYS, "size says warp tiles of ", size[2] * size[3],
                          " pixels, but they have ", WARP_TILE_RAYS);
        int64_t const pixels = size[0] * size[1], all = views.size(0) * pixels;
        TORCH_CHECK_VALUE(n == pixels || n == all, "directions has ", n, " rows, but an image has ", pixels);
        r.width = int(size[0]), r.height = int(size[1]), r.tile_width = int(size[2]), r.tile_height = int(size[3]);
        r.n = all, r.own = n == all;
        TORCH_CHECK_VALUE(r.n < MAX_INSTANCES, "there are ", r.n, " rays, but must be fewer than ", MAX_INSTANCES);
        return r;
    }
    r.n = n;
    check_tensor(t[3], "begins", at::kLong, {views.size(0) + 1}, device);
    check_range(t[3], "begins", 0, n + 1);
    check_ascends<int64_t>(t[3], "begins");
    r.sweeps = {cells_of({t[0], t[2]}, columns, device), views.size(0), t[3].const_data_ptr<int64_t>()};
    TORCH_CHECK_VALUE(r.sweeps.bands() <= cuda::MAX_BANDS, "there are ", r.sweeps.bands(),
                      " bands of all sweeps, but must be at most ", cuda::MAX_BANDS, ": give fewer views");
    return r;
}

inline cuda::VisibleList seen_by(Views const& p, cuda::Visibility const& visibility, at::Tensor const& needed,
                                 int64_t capacity, Site& site) {
    int64_t const all = p.scene.views * p.scene.g.n;
    auto* const count = needed.mutable_data_ptr<int64_t>();
    auto* const chosen = site.queue().memory.array<uint32_t>(all);
    if (all)
        cuda::select_flagged(visibility.visible, all, chosen, count, site.queue());
    else
        needed.select(0, 0).zero_();
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const most = !all ? 0 : capacity < 0 ? read_back(needed, 0) : capacity < all ? capacity : all;
    return {most, chosen, count};
}

struct Listed {
    BinParams warp_tiles;
    int64_t capacity;
    at::Tensor table, begins, offsets, gaussians, rows;  // table: rays of each list; begins as BinWork has them
    at::Tensor numbers;                                  // instances of the rows, nearest first
};

// Lists hold the places of `rows`. needed [2]: Gaussians that some view sees, and entries.
inline Listed list_views(Views const& p, cuda::RayArrays const& rays, int depth_bits, at::IntArrayRef capacity,
                         at::Tensor const& needed, Site& site) {
    auto const queue = site.queue();
    Listed out = {};
    int64_t const n = cuda::warp_tile_count(p), lists = n * lists_per_tile(p.rays.is_camera);
    check_tile_count(n, p.rays.is_camera);
    out.table = site.empty({lists, rays_per_list(p.rays.is_camera)}, at::kLong);
    WarpTiles const warp_tiles = cuda::make_view_tiles(p, out.table.mutable_data_ptr<int64_t>(), queue);
    out.warp_tiles.g = p.scene.g, out.warp_tiles.warp_tiles = warp_tiles, out.warp_tiles.exact = true;
    out.warp_tiles.directions = rays.directions, out.warp_tiles.delays = rays.delays;
    cuda::Visibility const visibility = cuda::project_views(p, depth_bits, queue);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    cuda::VisibleList const visible_list = seen_by(p, visibility, needed, capacity[0], site);
    out.warp_tiles.v = visible_list.most;
    out.begins = site.empty({visible_list.most + 1}, at::kLong);
    out.rows =
        site.empty({visible_list.most, cuda::gaussian_row_floats(p.rays.moving, p.rays.is_camera ? 3 : 2)}, at::kFloat);
    cuda::BinWork work =
        cuda::make_bin_work(out.warp_tiles, out.begins.mutable_data_ptr<int64_t>(), capacity[1], queue);
    auto* const rows = out.rows.mutable_data_ptr<float>();
    if (!p.rays.is_camera) out.warp_tiles.shapes = rows;
    out.numbers = site.empty({visible_list.most}, at::kInt);
    cuda::pack_view_rows(p, visibility, visible_list, out.warp_tiles, work,
                         reinterpret_cast<uint32_t*>(out.numbers.mutable_data_ptr<int>()), rows, queue);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    auto* const most = needed.mutable_data_ptr<int64_t>() + 1;
    if (capacity[1] < 0) {
        cuda::assign_batches(out.warp_tiles, work, (read_back(out.begins, visible_list.most) + 31) / 32, queue);
        cuda::count_entries(out.warp_tiles, work, most, queue);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    out.capacity = capacity[1] < 0 ? read_back(needed, 1) : capacity[1];
    out.offsets = site.empty({lists + 1}, at::kLong), out.gaussians = site.empty({out.capacity}, at::kInt);
    cuda::ListEntries const entries = {out.capacity, out.offsets.mutable_data_ptr<int64_t>(),
                                       out.gaussians.mutable_data_ptr<int>()};
    cuda::list_entries(out.warp_tiles, work, entries, most, queue);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

inline RenderParams blended_of(Views const& p, Listed const& listed) {
    RenderParams r = {};
    BinParams const& b = listed.warp_tiles;
    r.n_features = p.rays.is_camera ? 3 : 2, r.n_rays = p.rays.n, r.n_tiles = b.warp_tiles.lists();
    r.rays_per_tile = rays_per_list(p.rays.is_camera), r.moving = p.rays.moving;
    r.directions = b.directions, r.delays = b.delays, r.rays = b.warp_tiles.rays;
    r.offsets = listed.offsets.const_data_ptr<int64_t>(), r.members = listed.gaussians.const_data_ptr<int>();
    return r;
}

}  // namespace nurec
