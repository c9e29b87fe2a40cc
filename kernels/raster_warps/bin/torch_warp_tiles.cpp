// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::group_sweep_rays and ::list_warp_tiles, which CUDA alone has.
#ifdef NUREC_CUDA

#include <torch/library.h>

#include "../../common/torch_cells.h"
#include "../../common/torch_check.h"
#include "../../common/torch_gaussians.h"
#include "../../common/torch_site.h"
#include "../../project/project.h"
#include "../../project/torch_warp_tiles.h"

namespace nurec {
namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Four group_sweep_rays(at::TensorList grid) {
    Sweeps const sweeps = {cells_of(grid, 1, grid[0].device()), 1, nullptr};
    Site site(grid[0].device());
    int64_t const n = cuda::max_warp_tiles(sweeps);
    Tensor const rays = site.empty({n, WARP_TILE_RAYS}, at::kLong), first = site.empty({sweeps.bands() + 1}, at::kInt);
    Tensor const bins = site.empty({sweeps.bands(), AZIMUTH_BINS, 2}, at::kInt);
    Tensor const heights = site.empty({sweeps.bands(), 2}, at::kFloat);
    cuda::group_sweep_rays(sweeps,
                           {rays.mutable_data_ptr<int64_t>(), first.mutable_data_ptr<int>(),
                            bins.mutable_data_ptr<int>(), heights.mutable_data_ptr<float>()},
                           site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {rays, first, bins, heights};
}

// The tensors of nurec_lite.native.operators.warp_tiles.WarpTiles; `size`: pixels of an image and of a warp tile,
// empty for a lidar.
WarpTiles warp_tiles_of(at::TensorList t, at::TensorList grid, at::IntArrayRef size) {
    check_group(t, "warp_tiles", 4, "rays, first, bins, heights");
    check_tensor(t[0], "warp_tiles.rays", at::kLong, {-1, WARP_TILE_RAYS}, t[0].device());
    WarpTiles b = size.empty() ? sweep_tiles_of(t[1], t[2], t[3], grid) : WarpTiles{};
    b.n = t[0].size(0), b.rays = t[0].const_data_ptr<int64_t>(), b.is_camera = !size.empty();
    check_tile_count(b.n, b.is_camera);
    if (b.is_camera) {
        TORCH_CHECK_VALUE(size.size() == 4, "size has ", size.size(), " numbers, but must have 4 or none");
        for (int64_t const s : size) check_count(s, "size", MAX_SIDE);
        b.width = int(size[2]), b.height = int(size[3]);
        b.columns = int((size[0] + size[2] - 1) / size[2]), b.rows = int((size[1] + size[3] - 1) / size[3]);
        int64_t const all = SUPER_TILE_LISTS * int64_t(b.super_tiles_of_image());
        TORCH_CHECK_VALUE(b.n == all, "warp_tiles.rays has ", b.n, " rows, but must have ", all);
    }
    return b;
}

float const* checked_shapes(Tensor const& t, int64_t n, bool is_camera, at::Device device) {
    check_tensor(t, "shapes", at::kFloat, {n, shape_floats(is_camera)}, device);
    check_aligned(t, "shapes");
    return t.const_data_ptr<float>();
}

// The tensors of nurec_lite.native.operators.warp_tiles.BoundsInPlace for an image, and of CandidatesInPlace for a
// lidar.
void add_places(at::TensorList t, int64_t n, BinParams& p) {
    bool const is_camera = p.warp_tiles.is_camera;
    check_group(t, "projection", is_camera ? 3 : 4,
                is_camera ? "indices, there, bounds" : "indices, there, candidates, counts");
    auto const device = t[0].device();
    check_tensor(t[0], "indices", at::kLong, {-1}, device);
    check_tensor(t[1], "there", at::kLong, {1}, device);
    char const* const name = is_camera ? "bounds" : "candidates";
    check_tensor(t[2], name, at::kFloat, {n, is_camera ? 4 : CANDIDATE_FLOATS}, device);
    check_aligned(t[2], name);
    p.v = t[0].size(0), p.index = t[0].const_data_ptr<int64_t>(), p.count = t[1].const_data_ptr<int64_t>();
    auto* const places = t[2].mutable_data_ptr<float>();
    if (is_camera) {
        p.bounds = reinterpret_cast<Bounds<float> const*>(places);
        return;
    }
    check_tensor(t[3], "counts", at::kInt, {n}, device);
    p.candidates = reinterpret_cast<cuda::Candidates*>(places), p.counts = t[3].const_data_ptr<int>();
}

Three list_warp_tiles(at::TensorList gaussians, Tensor const& view, at::TensorList projection, Tensor const& shapes,
                      at::TensorList rays, at::TensorList warp_tiles, at::TensorList grid, at::IntArrayRef size,
                      bool exact, int64_t capacity) {
    check_capacity(capacity);
    GaussianTensors const g = gaussians_of(gaussians, view);
    check_gaussians(g);
    int64_t const n = arrays_of(g).n;
    check_group(rays, "rays", 2, "directions, delays");
    BinParams p = {};
    p.g = arrays_of(g), p.warp_tiles = warp_tiles_of(warp_tiles, grid, size), p.view = &row_of(view)->view;
    add_places(projection, n, p);
    p.directions = rays[0].const_data_ptr<float>(), p.delays = rays[1].const_data_ptr<float>(), p.exact = exact;
    p.shapes = exact ? checked_shapes(shapes, n, !size.empty(), view.device()) : nullptr;
    Site site(view.device());
    Tensor const begins = site.empty({p.v + 1}, at::kLong), needed = site.empty({1}, at::kLong);
    cuda::BinWork work = cuda::make_bin_work(p, begins.mutable_data_ptr<int64_t>(), capacity, site.queue());
    cuda::number_candidates(p, work, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    auto* const most = needed.mutable_data_ptr<int64_t>();
    if (capacity < 0) {
        cuda::assign_batches(p, work, (read_back(begins, p.v) + 31) / 32, site.queue());
        cuda::count_entries(p, work, most, site.queue());
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const entries = capacity < 0 ? checked_needed(read_back(needed, 0)) : capacity;
    Tensor const offsets = site.empty({p.warp_tiles.lists() + 1}, at::kLong), listed = site.empty({entries}, at::kInt);
    cuda::list_entries(p, work, {entries, offsets.mutable_data_ptr<int64_t>(), listed.mutable_data_ptr<int>()}, most,
                       site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {offsets, listed, capacity < 0 ? site.empty({0}, at::kLong) : needed};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("group_sweep_rays", &group_sweep_rays);
    m.impl("list_warp_tiles", &list_warp_tiles);
}

}  // namespace nurec

#endif
