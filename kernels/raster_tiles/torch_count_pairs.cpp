// SPDX-License-Identifier: Apache-2.0
// nurec_lite::count_pairs on either device: [A, W, 4], the fields of PairCounts of every warp of every tile.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstddef>

#include "../project/torch_render.h"
#include "count_pairs.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

static_assert(offsetof(PairCounts, gaussians) == 0 && offsetof(PairCounts, open) == 1 * sizeof(int64_t));
static_assert(offsetof(PairCounts, contributing) == 2 * sizeof(int64_t));
static_assert(offsetof(PairCounts, useful) == 3 * sizeof(int64_t) && sizeof(PairCounts) == 4 * sizeof(int64_t));

at::Tensor empty_counts(RenderTensors const& in) {
    auto const warps = (in.rays.size(1) + WARP - 1) / WARP;
    return at::empty({in.rays.size(0), warps, sizeof(PairCounts) / sizeof(int64_t)}, in.rays.options());
}

PairCounts* counts_of(at::Tensor const& t) {
    return t.numel() ? reinterpret_cast<PairCounts*>(t.mutable_data_ptr<int64_t>()) : nullptr;
}

using at::Tensor;

#ifdef NUREC_CUDA

Tensor count_pairs(at::TensorList gaussians, Tensor const& features, at::TensorList rays, at::TensorList lists,
                   Tensor const& view, bool moving) {
    RenderTensors const in = render_tensors(gaussians, features, rays, lists, view);
    check_render(in);
    Site site(view.device());
    Tensor const found = empty_counts(in);
    cuda::count_pairs(params_of(in, moving), counts_of(found), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return found;
}

#else

Tensor count_pairs(at::TensorList gaussians, Tensor const& features, at::TensorList rays, at::TensorList lists,
                   Tensor const& view, bool moving) {
    RenderTensors const in = render_tensors(gaussians, features, rays, lists, view);
    check_render(in);
    Tensor const found = empty_counts(in);
    cpu::count_pairs(params_of(in, moving), counts_of(found));
    return found;
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("count_pairs", &count_pairs);
}

}  // namespace nurec
