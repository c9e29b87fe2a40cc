// SPDX-License-Identifier: Apache-2.0
// nurec_lite::project on the CPU.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "../common/torch_copied.h"
#include "torch_project.h"

namespace nurec {
namespace {

using at::Tensor;

Projected split(cpu::Projection const& p, Tensor const& seen, bool is_camera) {
    auto const n = static_cast<int64_t>(p.index.size());
    Tensor const bounds = copied(p.bounds, at::kFloat, {n, 4});
    // copies: without Gaussians a slice counts as contiguous, and the two would share memory
    auto const columns = [&](int64_t first) {
        return bounds.slice(1, first, first + 2).clone(at::MemoryFormat::Contiguous);
    };
    return {copied(p.index, at::kLong, {n}),
            columns(0),
            columns(2),
            seen,
            at::empty({0, shape_floats(is_camera)}, bounds.options()),
            at::empty({0}, bounds.options().dtype(at::kLong)),
            at::empty({0, CANDIDATE_FLOATS}, bounds.options()),
            at::empty({0}, bounds.options().dtype(at::kInt))};
}

std::vector<uint8_t> seen_in(int64_t n, cpu::Projection const& found) {
    std::vector<uint8_t> seen(n, 0);
    for (int64_t const i : found.index) seen[i] = 1;
    return seen;
}

void fill_up(int64_t n, cpu::Projection& found) {
    found.index.resize(n, 0);
    found.bounds.resize(n, {NOWHERE, NOWHERE, -NOWHERE, -NOWHERE});
}

Projected project(at::TensorList gaussians, Tensor const& view, bool is_camera, at::TensorList grid, int64_t columns,
                  at::TensorList bands, bool all, int64_t depth_bits, bool shapes,
                  std::optional<Tensor> const& occupied, bool in_place, std::optional<Tensor> const& features) {
    TORCH_CHECK_VALUE(bands.empty(), "bands are given, but only a GPU lists warp tiles: leave them out");
    TORCH_CHECK_VALUE(!in_place, "bounds are to stay in place, but only a GPU lists warp tiles: leave that out");
    TORCH_CHECK_VALUE(!shapes, "shapes are asked for, but only a GPU lists warp tiles: leave them out");
    TORCH_CHECK_VALUE(!features, "features are given, but only a GPU keeps what rays read: leave them out");
    TORCH_CHECK_VALUE(!occupied, "occupied is given, but only a GPU looks at it: leave it out");
    ProjectParams const p = checked_project(gaussians, view, is_camera, grid, columns);
    cpu::Projection found = cpu::project(p, checked_depth_bits(depth_bits));
    std::vector<uint8_t> const seen = seen_in(p.g.n, found);
    if (all) fill_up(p.g.n, found);
    return split(found, copied(seen, at::kByte, {p.g.n}), is_camera);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("project", &project);
}

}  // namespace nurec
