// SPDX-License-Identifier: Apache-2.0
// nurec_lite::tile_camera and ::tile_lidar on CUDA. Without a room they read the numbers of tiles and entries back: the
// host waits for each.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_tile.h"

namespace nurec {
namespace {

using at::Tensor;

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

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("tile_camera", &tile_camera);
    m.impl("tile_lidar", &tile_lidar);
}

}  // namespace nurec
