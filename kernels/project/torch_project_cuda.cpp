// SPDX-License-Identifier: Apache-2.0
// nurec_lite::project on CUDA. Unless all Gaussians are wanted, the number of those that are seen is read back.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_project.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor occupied_cells(at::TensorList grid, int64_t columns) {
    Cells const cells = cells_of(grid, columns, grid[0].device());
    Site site(grid[0].device());
    Tensor const table = site.empty({cells.bands + 1, 3 * cells.columns + 1}, at::kInt);
    cuda::count_occupied({cells, 1, nullptr}, table.mutable_data_ptr<int>(), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return table;
}

// Of a lidar, as it is given or as its rays say.
int const* occupied_by(ProjectParams const& p, std::optional<Tensor> const& given, Site& site) {
    if (p.is_camera) return nullptr;
    if (!given) return cuda::count_occupied({p.cells, 1, nullptr}, site.queue());
    check_tensor(*given, "occupied", at::kInt, {p.cells.bands + 1, 3 * p.cells.columns + 1}, site.device());
    return given->const_data_ptr<int>();
}

Projected project(at::TensorList gaussians, Tensor const& view, bool is_camera, at::TensorList grid, int64_t columns,
                  bool all, int64_t depth_bits, bool shapes, std::optional<Tensor> const& occupied, bool in_place) {
    ProjectParams const p = checked_project(gaussians, view, is_camera, grid, columns);
    int const bits = checked_depth_bits(depth_bits);
    Site site(view.device());
    Tensor const seen = site.empty({p.g.n}, at::kByte);
    Tensor const kept = site.empty({shapes ? p.g.n : 0, shape_floats(is_camera)}, at::kFloat);
    Tensor const bounds = site.empty({p.g.n, 4}, at::kFloat);
    auto const& memory = site.queue().memory;
    cuda::Looked const looked = {seen.mutable_data_ptr<uint8_t>(), memory.array<uint32_t>(p.g.n),
                                 reinterpret_cast<Bounds<float>*>(bounds.mutable_data_ptr<float>()), bits,
                                 shapes ? kept.mutable_data_ptr<float>() : nullptr};
    cuda::look(p, occupied_by(p, occupied, site), looked, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    Tensor const count = site.empty({1}, at::kLong);
    auto* const visible = count.mutable_data_ptr<int64_t>();
    Tensor const order = site.empty({in_place ? p.g.n : 0}, at::kLong);
    uint32_t const* const numbers = cuda::sort_by_depth(
        p.g.n, looked, visible, in_place ? order.mutable_data_ptr<int64_t>() : nullptr, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const v = all ? p.g.n : read_back(count, 0);
    if (in_place) return {order.slice(0, 0, v), bounds, site.empty({0, 2}, at::kFloat), seen, kept, count};
    Tensor const index = site.empty({v}, at::kLong), low = site.empty({v, 2}, at::kFloat),
                 high = site.empty({v, 2}, at::kFloat);
    cuda::Sorted const out = {v, index.mutable_data_ptr<int64_t>(), low.mutable_data_ptr<float>(),
                              high.mutable_data_ptr<float>()};
    cuda::gather_bounds(looked, numbers, visible, out, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {index, low, high, seen, kept, site.empty({0}, at::kLong)};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("project", &project);
    m.impl("occupied_cells", &occupied_cells);
}

}  // namespace nurec
