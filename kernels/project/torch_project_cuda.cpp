// SPDX-License-Identifier: Apache-2.0
// nurec_lite::project on CUDA. Unless all Gaussians are wanted, the number of those that are seen is read back.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_project.h"

namespace nurec {
namespace {

using at::Tensor;

cuda::Sorted chosen(ProjectParams const& p, cuda::Looked const& looked, bool all, Site& site) {
    cuda::Sorted out = {p.g.n, nullptr, nullptr, nullptr, nullptr};
    if (all || !p.g.n) return out;
    Tensor const count = site.empty({1}, at::kLong);
    out.chosen = cuda::select_visible(p, looked, count.mutable_data_ptr<int64_t>(), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    out.v = read_back(count, 0);
    return out;
}

Projected project(at::TensorList gaussians, Tensor const& view, bool is_camera, at::TensorList grid, int64_t columns,
                  bool all) {
    ProjectParams const p = checked_project(gaussians, view, is_camera, grid, columns);
    Site site(view.device());
    Tensor const seen = site.empty({p.g.n}, at::kByte);
    auto const& memory = site.queue().memory;
    cuda::Looked const looked = {seen.mutable_data_ptr<uint8_t>(), memory.array<uint32_t>(p.g.n),
                                 memory.array<Bounds<float>>(p.g.n)};
    cuda::look(p, looked, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    cuda::Sorted out = chosen(p, looked, all, site);
    Tensor const index = site.empty({out.v}, at::kLong), low = site.empty({out.v, 2}, at::kFloat),
                 high = site.empty({out.v, 2}, at::kFloat);
    out.index = index.mutable_data_ptr<int64_t>();
    out.low = low.mutable_data_ptr<float>(), out.high = high.mutable_data_ptr<float>();
    cuda::sort_by_depth(looked, out, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {index, low, high, seen};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("project", &project);
}

}  // namespace nurec
