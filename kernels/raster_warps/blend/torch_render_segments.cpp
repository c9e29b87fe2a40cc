// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::render_segments, which CUDA alone has.
#ifdef NUREC_CUDA

#include <torch/library.h>

#include "torch_segments.h"

namespace nurec {
namespace {

using at::Tensor;
using BlendedParts = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

BlendedParts render_segments(at::TensorList gaussians, Tensor const& features, at::TensorList rays,
                             at::TensorList lists, Tensor const& view, bool moving, int64_t length,
                             std::optional<Tensor> const& rows, std::optional<Tensor> const& blocks) {
    RenderTensors const in = render_tensors(gaussians, features, rays, lists, view);
    check_warp_tiles(in);
    int64_t const width = cuda::gaussian_row_floats(moving, features.size(1)), g = in.g.scales.size(0);
    if (rows) check_tensor(*rows, "rows", at::kFloat, {g, width}, view.device()), check_aligned(*rows, "rows");
    check_count(length, "length", MAX_CAPACITY);
    Site site(view.device());
    int64_t const n = in.rays.size(0), most = cuda::max_segments(in.gaussians.size(0), n, length);
    Kept const kept = {
        site.empty({n + 1}, at::kLong), site.empty({most}, at::kInt),
        site.empty({most, cuda::FEATURES + features.size(1), cuda::rays_with(features.size(1))}, at::kFloat),
        site.empty({rows ? 0 : g, width}, at::kFloat)};
    Blended const found = unwritten_outputs(in.directions.size(0), features.size(1), features.options());
    RenderParams const p = params_of(in, moving, blocks);
    cuda::Segments segments = parts_of(kept, length);
    if (rows)
        segments.rows = rows->mutable_data_ptr<float>();
    else
        cuda::pack_gaussian_rows(p, segments.rows, site.queue());
    cuda::render_segments(p, written(found), segments, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return std::tuple_cat(found, kept);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("render_segments", &render_segments);
}

}  // namespace nurec

#endif
