// SPDX-License-Identifier: Apache-2.0
// nurec_lite::project and ::project_all on the CPU.
#include <torch/library.h>

#include "../common/torch_gaussians.h"
#include "../common/torch_lists_cpu.h"

namespace nurec {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor> split(cpu::Projection const& p) {
    auto const n = static_cast<int64_t>(p.index.size());
    Tensor const bounds = copied(p.bounds, at::kFloat, {n, 4});
    // copies: without Gaussians a slice counts as contiguous, and the two would share memory
    auto const columns = [&](int64_t first) {
        return bounds.slice(1, first, first + 2).clone(at::MemoryFormat::Contiguous);
    };
    return {copied(p.index, at::kLong, {n}), columns(0), columns(2)};
}

cpu::Projection projected(GaussianTensors const& g, Tensor const& view, Tensor const& directions, Tensor const& edges,
                          int64_t columns) {
    check_gaussians(g);
    check_tensor(view, "view", at::kFloat, {sizeof(View<float>) / sizeof(float)}, at::kCPU);
    check_finite(view, "view");
    View<float> numbers;
    std::memcpy(&numbers, view.const_data_ptr<float>(), sizeof(numbers));
    cpu::Cells const cells = cells_of(directions, edges, columns);
    return cpu::project(arrays_of(g), numbers, numbers.is_camera > 0 ? nullptr : &cells);
}

std::tuple<Tensor, Tensor, Tensor> project(Tensor const& still_means, Tensor const& still_quats, Tensor const& means,
                                           Tensor const& quats, Tensor const& velocities, Tensor const& scales,
                                           Tensor const& opacities, Tensor const& view, Tensor const& directions,
                                           Tensor const& edges, int64_t columns, at::ArrayRef<double> centre) {
    return split(projected({still_means, still_quats, means, quats, velocities, scales, opacities, centre}, view,
                           directions, edges, columns));
}

// Those that project leaves out follow.
std::tuple<Tensor, Tensor, Tensor> project_all(Tensor const& still_means, Tensor const& still_quats,
                                               Tensor const& means, Tensor const& quats, Tensor const& velocities,
                                               Tensor const& scales, Tensor const& opacities, Tensor const& view,
                                               Tensor const& directions, Tensor const& edges, int64_t columns,
                                               at::ArrayRef<double> centre) {
    cpu::Projection found = projected({still_means, still_quats, means, quats, velocities, scales, opacities, centre},
                                      view, directions, edges, columns);
    std::vector<bool> seen(scales.size(0), false);
    for (int64_t const i : found.index) seen[i] = true;
    for (int64_t i = 0; i < scales.size(0); ++i)
        if (!seen[i]) found.index.push_back(i), found.bounds.push_back({NOWHERE, NOWHERE, -NOWHERE, -NOWHERE});
    return split(found);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("project", &project);
    m.impl("project_all", &project_all);
}

}  // namespace nurec
