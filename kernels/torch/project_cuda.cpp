// SPDX-License-Identifier: Apache-2.0
// nurec_lite::project, ::tile_camera and ::tile_lidar on CUDA. The numbers of visible Gaussians, tiles and entries are
// read back: the host waits for each.
#include <torch/library.h>

#include <cstring>

#include "../cuda/project.h"
#include "../cuda/sort.h"
#include "cuda_memory.h"
#include "gaussians.h"

namespace nurec {
namespace {

using at::Tensor;

struct Place {  // where an operator runs
    explicit Place(at::Device device) : guard(device), memory(device), options(at::TensorOptions().device(device)) {}

    cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream(); }
    Tensor empty(at::IntArrayRef shape, at::ScalarType dtype) const { return at::empty(shape, options.dtype(dtype)); }
    Tensor zeros(at::IntArrayRef shape, at::ScalarType dtype) const { return at::zeros(shape, options.dtype(dtype)); }

    c10::cuda::CUDAGuard guard;
    Memory memory;
    at::TensorOptions options;
};

cuda::Cells cells_of(Tensor const& directions, Tensor const& edges, int64_t columns, at::Device device) {
    check_cells(directions, edges, columns, device);
    return {edges.const_data_ptr<float>(), edges.size(0) + 1, columns, directions.const_data_ptr<float>(),
            directions.size(0)};
}

int64_t read_back(Tensor const& t, int64_t place) {
    return t.select(0, place).item<int64_t>();
}

std::tuple<Tensor, Tensor, Tensor> project(Tensor const& still_means, Tensor const& still_quats, Tensor const& means,
                                           Tensor const& quats, Tensor const& velocities, Tensor const& scales,
                                           Tensor const& opacities, Tensor const& view, Tensor const& directions,
                                           Tensor const& edges, int64_t columns) {
    GaussianTensors const g = {still_means, still_quats, means, quats, velocities, scales, opacities};
    check_gaussians(g);
    check_tensor(view, "view", at::kFloat, {sizeof(View<float>) / sizeof(float)}, at::kCPU);
    check_finite(view, "view");
    Place place(means.device());
    int64_t const n = scales.size(0);
    Tensor const visible = place.empty({n}, at::kByte), keys = place.empty({n}, at::kInt);
    Tensor const bounds = place.empty({n, 4}, at::kFloat), index = place.empty({n}, at::kInt);
    Tensor const count = place.zeros({1}, at::kLong);
    cuda::ProjectParams p = {};
    p.g = arrays_of(g);
    std::memcpy(&p.view, view.const_data_ptr<float>(), sizeof(p.view));
    p.visible = visible.mutable_data_ptr<uint8_t>();
    p.keys = reinterpret_cast<uint32_t*>(keys.mutable_data_ptr<int>());
    p.bounds = reinterpret_cast<Bounds<float>*>(bounds.mutable_data_ptr<float>());
    Tensor table;
    if (!(p.view.is_camera > 0)) {
        p.cells = cells_of(directions, edges, columns, means.device());
        Tensor const cell = place.empty({p.cells.n_rays}, at::kInt);
        Tensor const there = place.zeros({p.cells.bands * columns}, at::kInt);
        table = place.empty({(p.cells.bands + 1) * (3 * columns + 1)}, at::kInt);
        cuda::count_occupied(p.cells, cell.mutable_data_ptr<int>(), there.mutable_data_ptr<int>(),
                             table.mutable_data_ptr<int>(), place.stream());
        p.occupied = table.const_data_ptr<int>();
    }
    cuda::look(p, place.stream());
    auto* chosen = reinterpret_cast<uint32_t*>(index.mutable_data_ptr<int>());
    if (n)
        cuda::select_flagged(p.visible, n, chosen, count.mutable_data_ptr<int64_t>(), place.memory.allocator(),
                             place.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const v = read_back(count, 0);
    Tensor out = place.empty({v}, at::kLong), low = place.empty({v, 2}, at::kFloat),
           high = place.empty({v, 2}, at::kFloat);
    cuda::sort_by_depth({v, chosen, p.keys, p.bounds, out.mutable_data_ptr<int64_t>(), low.mutable_data_ptr<float>(),
                         high.mutable_data_ptr<float>()},
                        place.memory.allocator(), place.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out, low, high};
}

cuda::TileParams tile_params(Tensor const& low, Tensor const& high, Tensor const& index) {
    check_projection(low, high, index);
    cuda::TileParams p = {};
    p.v = index.size(0), p.low = low.const_data_ptr<float>(), p.high = high.const_data_ptr<float>();
    p.index = index.const_data_ptr<int64_t>();
    return p;
}

std::tuple<Tensor, Tensor> entries(cuda::TileParams const& p, Place& place) {
    Tensor const counts = place.empty({p.v + 1}, at::kLong);
    cuda::count_entries(p, counts.mutable_data_ptr<int64_t>(), place.memory.allocator(), place.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const n = read_back(counts, p.v);
    Tensor offsets = place.empty({p.n_tiles + 1}, at::kLong), gaussians = place.empty({n}, at::kLong);
    cuda::list_entries(p, counts.const_data_ptr<int64_t>(), n, offsets.mutable_data_ptr<int64_t>(),
                       gaussians.mutable_data_ptr<int64_t>(), place.memory.allocator(), place.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {offsets, gaussians};
}

std::tuple<Tensor, Tensor> tile_camera(Tensor const& low, Tensor const& high, Tensor const& index, int64_t width,
                                       int64_t height, int64_t tile) {
    check_image(width, height, tile);
    Place place(index.device());
    cuda::TileParams p = tile_params(low, high, index);
    p.is_camera = true, p.width = width, p.height = height, p.tile = tile;
    p.n_tiles = ((width + tile - 1) / tile) * ((height + tile - 1) / tile);
    return entries(p, place);
}

std::tuple<Tensor, Tensor, Tensor> tile_lidar(Tensor const& low, Tensor const& high, Tensor const& index,
                                              Tensor const& directions, Tensor const& edges, int64_t columns,
                                              int64_t max_rays) {
    check_count(max_rays, "max_rays", MAX_SIDE);
    Place place(index.device());
    cuda::TileParams p = tile_params(low, high, index);
    p.cells = cells_of(directions, edges, columns, index.device());
    int64_t const n_cells = p.cells.bands * columns;
    Tensor const cell = place.empty({p.cells.n_rays}, at::kInt), first = place.empty({n_cells + 1}, at::kLong);
    cuda::count_ray_tiles(p.cells, max_rays, cell.mutable_data_ptr<int>(), first.mutable_data_ptr<int64_t>(),
                          place.memory.allocator(), place.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    p.first = first.const_data_ptr<int64_t>(), p.n_tiles = read_back(first, n_cells);
    Tensor rays = place.empty({p.n_tiles, max_rays}, at::kLong);
    cuda::fill_ray_tiles(p.cells, max_rays, cell.const_data_ptr<int>(), p.first, p.n_tiles,
                         rays.mutable_data_ptr<int64_t>(), place.memory.allocator(), place.stream());
    auto [offsets, gaussians] = entries(p, place);
    return {rays, offsets, gaussians};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("project", &project);
    m.impl("tile_camera", &tile_camera);
    m.impl("tile_lidar", &tile_lidar);
}

}  // namespace nurec
