// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::render_views, which CUDA alone has.
#ifdef NUREC_CUDA

#include <torch/library.h>

#include "torch_views.h"

namespace nurec {
namespace {

using at::Tensor;
using Rendered = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// `segment`: entries of a segment at most; 0: lists are not cut.
void blend_views(RenderParams const& p, RenderOutputs const& out, Listed const& listed, int64_t segment, Site& site) {
    auto const queue = site.queue();
    auto* const rows = listed.rows.mutable_data_ptr<float>();
    if (segment == 0) return cuda::render_whole(p, out, rows, queue);
    int64_t const most = cuda::max_segments(listed.capacity, p.n_tiles, segment), lines = cuda::FEATURES + p.n_features;
    auto const& memory = queue.memory;
    cuda::render_segments(p, out,
                          {most, segment, memory.array<int64_t>(p.n_tiles + 1), memory.array<int>(most),
                           memory.array<float>(cuda::rays_with(p.n_features) * lines * most), rows},
                          queue);
}

Rendered render_views(at::TensorList scene, Tensor const& views, at::TensorList rays, at::IntArrayRef size,
                      int64_t columns, bool moving, bool lenses, int64_t segment, at::IntArrayRef capacity) {
    TORCH_CHECK_VALUE(segment >= 0 && segment <= MAX_CAPACITY, "segment is ", segment, ", but must be 0 to ",
                      MAX_CAPACITY);
    TORCH_CHECK_VALUE(capacity.size() == 2, "capacity has ", capacity.size(),
                      " numbers, but must have 2: Gaussians and entries");
    for (int64_t const r : capacity)
        TORCH_CHECK_VALUE(r >= -1 && r <= MAX_CAPACITY, "capacity is ", r, ", but must be 0 to ", MAX_CAPACITY,
                          ", or -1");
    Views const p = {scene_of(scene, views), rays_of(rays, size, columns, moving, lenses, views)};
    Site site(views.device());
    int64_t const r = p.rays.n, c = p.rays.is_camera ? 3 : 2;
    auto const floats = [&](at::IntArrayRef shape) { return site.empty(shape, at::kFloat); };
    Blended const found = unwritten_outputs(r, c, views.options());
    Tensor const directions = floats({r, 3}), delays = floats({r});
    Tensor const needed = site.empty({2}, at::kLong);
    cuda::RayArrays const made = {directions.mutable_data_ptr<float>(), delays.mutable_data_ptr<float>()};
    cuda::make_view_rays(p, made, site.queue());
    Listed const listed = list_views(p, made, DEPTH_BITS, capacity, needed, site);
    blend_views(blended_of(p, listed), written(found), listed, segment, site);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return std::tuple_cat(found, std::make_tuple(directions, needed));
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("render_views", &render_views);
}

}  // namespace nurec

#endif
