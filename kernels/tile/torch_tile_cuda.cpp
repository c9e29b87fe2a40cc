// SPDX-License-Identifier: Apache-2.0
// nurec_lite::tile_camera and ::tile_lidar on CUDA, which read the numbers of tiles and entries back: the host waits
// for each. ::tile_camera_within and ::tile_lidar_within read nothing back.
#include <torch/library.h>

#include "../common/torch_site.h"

namespace nurec {
namespace {

using at::Tensor;

struct Entries {
    Tensor counts;  // [V + 1] places of the Gaussians' entries; the last is the number of all
    Tensor offsets, gaussians;
};

cuda::TileParams tile_params(Tensor const& low, Tensor const& high, Tensor const& index) {
    check_projection(low, high, index);
    cuda::TileParams p = {};
    p.v = index.size(0), p.low = low.const_data_ptr<float>(), p.high = high.const_data_ptr<float>();
    p.index = index.const_data_ptr<int64_t>();
    return p;
}

// At most `room` entries; all of them, and the host waits for their number, if it is negative.
Entries entries(cuda::TileParams const& p, int64_t room, Site& site) {
    Tensor const counts = site.empty({p.v + 1}, at::kLong);
    cuda::count_entries(p, counts.mutable_data_ptr<int64_t>(), site.memory.allocator(), site.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const n = room < 0 ? read_back(counts, p.v) : room;
    Tensor const offsets = site.empty({p.n_tiles + 1}, at::kLong), gaussians = site.empty({n}, at::kLong);
    cuda::list_entries(p, counts.const_data_ptr<int64_t>(), n, offsets.mutable_data_ptr<int64_t>(),
                       gaussians.mutable_data_ptr<int64_t>(), site.memory.allocator(), site.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {counts, offsets, gaussians};
}

Tensor needed(Entries const& found) {
    return found.counts.slice(0, found.counts.size(0) - 1).clone();
}

Entries camera_entries(Tensor const& low, Tensor const& high, Tensor const& index, int64_t width, int64_t height,
                       int64_t tile, int64_t room) {
    check_image(width, height, tile);
    Site site(index.device());
    cuda::TileParams p = tile_params(low, high, index);
    p.is_camera = true, p.width = width, p.height = height, p.tile = tile;
    p.n_tiles = ((width + tile - 1) / tile) * ((height + tile - 1) / tile);
    return entries(p, room, site);
}

std::tuple<Tensor, Tensor> tile_camera(Tensor const& low, Tensor const& high, Tensor const& index, int64_t width,
                                       int64_t height, int64_t tile) {
    Entries const found = camera_entries(low, high, index, width, height, tile, -1);
    return {found.offsets, found.gaussians};
}

std::tuple<Tensor, Tensor, Tensor> tile_camera_within(Tensor const& low, Tensor const& high, Tensor const& index,
                                                      int64_t width, int64_t height, int64_t tile, int64_t room) {
    check_room(room);
    Entries const found = camera_entries(low, high, index, width, height, tile, room);
    return {found.offsets, found.gaussians, needed(found)};
}

// As many tiles as the rays can fill, whatever their cells: all full ones, and one more a cell.
int64_t most_tiles(cuda::Cells const& cells, int64_t max_rays) {
    return cells.n_rays / max_rays + std::min(cells.bands * cells.columns, cells.n_rays);
}

std::pair<Tensor, Entries> lidar_entries(Tensor const& low, Tensor const& high, Tensor const& index,
                                         Tensor const& directions, Tensor const& edges, int64_t columns,
                                         int64_t max_rays, int64_t room) {
    check_count(max_rays, "max_rays", MAX_SIDE);
    Site site(index.device());
    cuda::TileParams p = tile_params(low, high, index);
    p.cells = cells_of(directions, edges, columns, index.device());
    int64_t const n_cells = p.cells.bands * columns;
    Tensor const cell = site.empty({p.cells.n_rays}, at::kInt), first = site.empty({n_cells + 1}, at::kLong);
    cuda::count_ray_tiles(p.cells, max_rays, cell.mutable_data_ptr<int>(), first.mutable_data_ptr<int64_t>(),
                          site.memory.allocator(), site.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    p.first = first.const_data_ptr<int64_t>();
    p.n_tiles = room < 0 ? read_back(first, n_cells) : most_tiles(p.cells, max_rays);
    Tensor const rays = site.empty({p.n_tiles, max_rays}, at::kLong);
    cuda::fill_ray_tiles(p.cells, max_rays, cell.const_data_ptr<int>(), p.first, p.n_tiles,
                         rays.mutable_data_ptr<int64_t>(), site.memory.allocator(), site.stream());
    return {rays, entries(p, room, site)};
}

std::tuple<Tensor, Tensor, Tensor> tile_lidar(Tensor const& low, Tensor const& high, Tensor const& index,
                                              Tensor const& directions, Tensor const& edges, int64_t columns,
                                              int64_t max_rays) {
    auto const [rays, found] = lidar_entries(low, high, index, directions, edges, columns, max_rays, -1);
    return {rays, found.offsets, found.gaussians};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> tile_lidar_within(Tensor const& low, Tensor const& high, Tensor const& index,
                                                             Tensor const& directions, Tensor const& edges,
                                                             int64_t columns, int64_t max_rays, int64_t room) {
    check_room(room);
    auto const [rays, found] = lidar_entries(low, high, index, directions, edges, columns, max_rays, room);
    return {rays, found.offsets, found.gaussians, needed(found)};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("tile_camera", &tile_camera);
    m.impl("tile_camera_within", &tile_camera_within);
    m.impl("tile_lidar", &tile_lidar);
    m.impl("tile_lidar_within", &tile_lidar_within);
}

}  // namespace nurec
