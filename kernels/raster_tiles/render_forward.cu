// SPDX-License-Identifier: Apache-2.0
// One block a tile, one thread a ray; Gaussians are staged in shared memory a batch at a time.
#include "rows.cuh"

namespace nurec::cuda {
namespace {

struct State {
    float T = 1, distance = 0, median = 0;
    float features[MAX_FEATURES] = {};
};

// The target is read where it counts, not kept: a few registers less.
template <bool MOVING>
__device__ void blend_one(Staged const& p, int64_t i, Row const& g, Ray<float> const& ray, State& s, bool& open) {
    Response<float> const at = respond<MOVING>(g.frame, g.opacity, ray);
    float const before = s.T;
    float const w = blend_weight(at.alpha, at.t, s.T, open);
    if (w == 0) return;
    for (int c = 0; c < MAX_FEATURES; ++c) s.features[c] += w * g.features[c];
    s.distance += w * range_residual(at.t, load_target(p, i));
    if (before > 0.5f && s.T <= 0.5f) s.median = at.t;
}

template <bool MOVING>
__global__ void __launch_bounds__(TILE_RAYS) renderForward_kernel(Staged p, RenderOutputs out) {
    __shared__ Row batch[BATCH];
    int64_t const i = my_ray(p), begin = p.offsets[blockIdx.x], end = p.offsets[blockIdx.x + 1];
    Ray<float> const ray = load_ray(p, i);
    State s;
    bool open = i >= 0;
    for (int64_t first = begin; first < end; first += BATCH) {
        if (__syncthreads_count(open) == 0) break;
        int const n = int(end - first < BATCH ? end - first : BATCH);
        if (int(threadIdx.x) < n) copy_row(batch[threadIdx.x], p.rows[p.gaussians[first + threadIdx.x]]);
        __syncthreads();
        for (int k = 0; k < n && open; ++k) blend_one<MOVING>(p, i, batch[k], ray, s, open);
    }
    if (i < 0) return;
#pragma unroll
    for (int c = 0; c < MAX_FEATURES; ++c)
        if (c < p.n_features) out.features[p.n_features * i + c] = s.features[c];
    out.distance[i] = s.distance, out.transmittance[i] = s.T, out.median[i] = s.median;
}

}  // namespace

void render_forward(RenderParams const& given, RenderOutputs const& out, Queue const& queue) {
    Staged const p = staged(given, queue);
    fill_rows(p, queue.stream);
    if (!p.n_tiles) return;
    auto const blocks = static_cast<unsigned>(p.n_tiles);
    if (p.moving)
        renderForward_kernel<true><<<blocks, TILE_RAYS, 0, queue.stream>>>(p, out);
    else
        renderForward_kernel<false><<<blocks, TILE_RAYS, 0, queue.stream>>>(p, out);
}

}  // namespace nurec::cuda
