// SPDX-License-Identifier: Apache-2.0
// nurec_lite::project and ::project_all on CUDA. For the first, the number of visible Gaussians is read back.
#include <torch/library.h>

#include <cstring>

#include "../common/sort.h"
#include "../common/torch_gaussians.h"
#include "../common/torch_site.h"

namespace nurec {
namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// Numbers of the visible Gaussians, ascending; returns how many there are.
int64_t select_visible(cuda::ProjectParams const& p, uint32_t* chosen, Site& site) {
    if (!p.g.n) return 0;
    Tensor const count = site.empty({1}, at::kLong);
    cuda::select_flagged(p.visible, p.g.n, chosen, count.mutable_data_ptr<int64_t>(), site.memory.allocator(),
                         site.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return read_back(count, 0);
}

Three in_order(cuda::ProjectParams const& p, Site& site, bool all) {
    int64_t const n = p.g.n;
    auto* const chosen = all ? nullptr : site.memory.allocator().array<uint32_t>(n);
    int64_t const v = all ? n : select_visible(p, chosen, site);
    Tensor index = site.empty({v}, at::kLong), low = site.empty({v, 2}, at::kFloat),
           high = site.empty({v, 2}, at::kFloat);
    cuda::sort_by_depth({v, all ? p.visible : nullptr, chosen, p.keys, p.bounds, index.mutable_data_ptr<int64_t>(),
                         low.mutable_data_ptr<float>(), high.mutable_data_ptr<float>()},
                        site.memory.allocator(), site.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {index, low, high};
}

Three projected(GaussianTensors const& g, Tensor const& view, Tensor const& directions, Tensor const& edges,
                int64_t columns, bool all) {
    check_gaussians(g);
    check_tensor(view, "view", at::kFloat, {sizeof(View<float>) / sizeof(float)}, at::kCPU);
    check_finite(view, "view");
    Site site(g.means.device());
    int64_t const n = g.scales.size(0);
    Tensor const visible = site.empty({n}, at::kByte), keys = site.empty({n}, at::kInt);
    Tensor const bounds = site.empty({n, 4}, at::kFloat);
    cuda::ProjectParams p = {};
    p.g = arrays_of(g);
    std::memcpy(&p.view, view.const_data_ptr<float>(), sizeof(p.view));
    p.visible = visible.mutable_data_ptr<uint8_t>();
    p.keys = reinterpret_cast<uint32_t*>(keys.mutable_data_ptr<int>());
    p.bounds = reinterpret_cast<Bounds<float>*>(bounds.mutable_data_ptr<float>());
    Tensor table;
    if (!(p.view.is_camera > 0)) {
        p.cells = cells_of(directions, edges, columns, g.means.device());
        Tensor const cell = site.empty({p.cells.n_rays}, at::kInt);
        Tensor const there = site.zeros({p.cells.bands * columns}, at::kInt);
        table = site.empty({(p.cells.bands + 1) * (3 * columns + 1)}, at::kInt);
        cuda::count_occupied(p.cells, cell.mutable_data_ptr<int>(), there.mutable_data_ptr<int>(),
                             table.mutable_data_ptr<int>(), site.stream());
        p.occupied = table.const_data_ptr<int>();
    }
    cuda::look(p, site.stream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return in_order(p, site, all);
}

Three project(Tensor const& still_means, Tensor const& still_quats, Tensor const& means, Tensor const& quats,
              Tensor const& velocities, Tensor const& scales, Tensor const& opacities, Tensor const& view,
              Tensor const& directions, Tensor const& edges, int64_t columns, at::ArrayRef<double> centre) {
    return projected({still_means, still_quats, means, quats, velocities, scales, opacities, centre}, view, directions,
                     edges, columns, false);
}

Three project_all(Tensor const& still_means, Tensor const& still_quats, Tensor const& means, Tensor const& quats,
                  Tensor const& velocities, Tensor const& scales, Tensor const& opacities, Tensor const& view,
                  Tensor const& directions, Tensor const& edges, int64_t columns, at::ArrayRef<double> centre) {
    return projected({still_means, still_quats, means, quats, velocities, scales, opacities, centre}, view, directions,
                     edges, columns, true);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("project", &project);
    m.impl("project_all", &project_all);
}

}  // namespace nurec
