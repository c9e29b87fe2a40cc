// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::tile_camera and ::tile_lidar: checks and allocation, for the CPU and for CUDA. `capacity` is
// how many entries the lists may have, or -1: all. With a capacity nothing is read back, and `needed` [1]
// says how many there are; without, it is empty.
#include <torch/library.h>

#include "../common/torch_cells.h"
#include "../common/torch_site.h"
#include "tile.h"

#ifndef NUREC_CUDA
#include <algorithm>
#endif

namespace nurec {
namespace {

using CameraLists = std::tuple<at::Tensor, at::Tensor, at::Tensor>;             // offsets, gaussians, needed
using LidarLists = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;  // rays, and these

// The tensors of nurec_lite.native.operators.tile.Bounds.
TileParams projection_of(at::TensorList t) {
    check_group(t, "projection", 3, "indices, low, high");
    at::Tensor const &index = t[0], &low = t[1], &high = t[2];
    check_tensor(index, "indices", at::kLong, {-1}, index.device());
    check_tensor(low, "low", at::kFloat, {index.size(0), 2}, index.device());
    check_tensor(high, "high", at::kFloat, {index.size(0), 2}, index.device());
    check_finite(low, "low");
    check_finite(high, "high");
    TileParams p = {};
    p.v = index.size(0), p.index = index.const_data_ptr<int64_t>();
    p.low = low.const_data_ptr<float>(), p.high = high.const_data_ptr<float>();
    return p;
}

TileParams checked_camera(at::TensorList projection, int64_t width, int64_t height, int64_t tile, int64_t capacity) {
    check_capacity(capacity);
    check_image(width, height, tile);
    TileParams p = projection_of(projection);
    p.is_camera = true, p.width = width, p.height = height, p.tile = tile;
    return p;
}

TileParams checked_lidar(at::TensorList projection, at::TensorList grid, int64_t columns, int64_t max_rays,
                         int64_t capacity) {
    check_capacity(capacity);
    check_count(max_rays, "max_rays", MAX_SIDE);
    TileParams p = projection_of(projection);
    p.cells = cells_of(grid, columns, projection[0].device());
    p.max_rays = max_rays;
    return p;
}

using at::Tensor;

#ifdef NUREC_CUDA

// Offsets, Gaussians, and how many entries there are.
CameraLists lists_of(TileParams const& p, cuda::Tiles const& tiles, int64_t capacity, Site& site) {
    Tensor const counts = site.empty({p.v + 1}, at::kLong);
    cuda::count_entries(p, tiles, counts.mutable_data_ptr<int64_t>(), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const n = capacity < 0 ? checked_needed(read_back(counts, p.v)) : capacity;
    Tensor const offsets = site.empty({tiles.n + 1}, at::kLong), gaussians = site.empty({n}, at::kLong);
    cuda::list_entries(p, tiles, counts.const_data_ptr<int64_t>(),
                       {n, offsets.mutable_data_ptr<int64_t>(), gaussians.mutable_data_ptr<int64_t>()}, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {offsets, gaussians, capacity < 0 ? site.empty({0}, at::kLong) : counts.slice(0, p.v).clone()};
}

CameraLists tile_camera(at::TensorList projection, int64_t width, int64_t height, int64_t tile, int64_t capacity) {
    TileParams const p = checked_camera(projection, width, height, tile, capacity);
    Site site(projection[0].device());
    return lists_of(p, {p.nx() * p.ny(), nullptr}, capacity, site);
}

LidarLists tile_lidar(at::TensorList projection, at::TensorList grid, int64_t columns, int64_t max_rays,
                      int64_t capacity) {
    TileParams const p = checked_lidar(projection, grid, columns, max_rays, capacity);
    Site site(projection[0].device());
    Tensor const cell = site.empty({p.cells.n_rays}, at::kInt), first = site.empty({p.n_cells() + 1}, at::kLong);
    cuda::CellTiles const found = {cell.mutable_data_ptr<int>(), first.mutable_data_ptr<int64_t>()};
    cuda::count_ray_tiles(p, found, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const n = capacity < 0 ? read_back(first, p.n_cells()) : p.most_tiles();
    Tensor const rays = site.empty({n, max_rays}, at::kLong);
    cuda::fill_ray_tiles(p, found, n, rays.mutable_data_ptr<int64_t>(), site.queue());
    auto const [offsets, gaussians, needed] = lists_of(p, {n, found.first}, capacity, site);
    return {rays, offsets, gaussians, needed};
}

#else

Tensor whole(std::vector<int64_t> const& values) {
    return copied(values, at::kLong, {static_cast<int64_t>(values.size())});
}

Tensor rays_of(cpu::TileLists const& lists) {
    return copied(lists.rays, at::kLong, {static_cast<int64_t>(lists.offsets.size()) - 1, lists.rays_per_tile});
}

// Cuts entries beyond the capacity, fills free places with zeros, and returns the number of entries before the cut.
Tensor fit(cpu::TileLists& lists, int64_t capacity) {
    if (capacity < 0) return whole({});
    Tensor const needed = whole({static_cast<int64_t>(lists.gaussians.size())});
    lists.gaussians.resize(capacity);
    for (int64_t& offset : lists.offsets) offset = std::min(offset, capacity);
    return needed;
}

CameraLists tile_camera(at::TensorList projection, int64_t width, int64_t height, int64_t tile, int64_t capacity) {
    cpu::TileLists lists = cpu::tile(checked_camera(projection, width, height, tile, capacity));
    Tensor const needed = fit(lists, capacity);
    return {whole(lists.offsets), whole(lists.gaussians), needed};
}

LidarLists tile_lidar(at::TensorList projection, at::TensorList grid, int64_t columns, int64_t max_rays,
                      int64_t capacity) {
    cpu::TileLists lists = cpu::tile(checked_lidar(projection, grid, columns, max_rays, capacity));
    Tensor const needed = fit(lists, capacity);
    return {rays_of(lists), whole(lists.offsets), whole(lists.gaussians), needed};
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("tile_camera", &tile_camera);
    m.impl("tile_lidar", &tile_lidar);
}

}  // namespace nurec
