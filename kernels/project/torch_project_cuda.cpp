// SPDX-License-Identifier: Apache-2.0
// nurec_lite::project on CUDA. Unless all Gaussians are wanted, the number of those that are seen is read back.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_project.h"

namespace nurec {
namespace {

using at::Tensor;

Projected project(at::TensorList gaussians, Tensor const& view, bool is_camera, at::TensorList grid, int64_t columns,
                  bool all, int64_t depth_bits, bool shapes) {
    ProjectParams const p = checked_project(gaussians, view, is_camera, grid, columns);
    int const bits = checked_depth_bits(depth_bits);
    Site site(view.device());
    Tensor const seen = site.empty({p.g.n}, at::kByte);
    Tensor const kept = site.empty({shapes ? p.g.n : 0, shape_floats(is_camera)}, at::kFloat);
    auto const& memory = site.queue().memory;
    cuda::Looked const looked = {seen.mutable_data_ptr<uint8_t>(), memory.array<uint32_t>(p.g.n),
                                 memory.array<Bounds<float>>(p.g.n), bits,
                                 shapes ? kept.mutable_data_ptr<float>() : nullptr};
    cuda::look(p, looked, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    Tensor const count = site.empty({1}, at::kLong);
    auto* const visible = count.mutable_data_ptr<int64_t>();
    uint32_t const* const numbers = cuda::sort_by_depth(p.g.n, looked, visible, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const v = all ? p.g.n : read_back(count, 0);
    Tensor const index = site.empty({v}, at::kLong), low = site.empty({v, 2}, at::kFloat),
                 high = site.empty({v, 2}, at::kFloat);
    cuda::Sorted const out = {v, index.mutable_data_ptr<int64_t>(), low.mutable_data_ptr<float>(),
                              high.mutable_data_ptr<float>()};
    cuda::gather_bounds(looked, numbers, visible, out, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {index, low, high, seen, kept};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("project", &project);
}

}  // namespace nurec
