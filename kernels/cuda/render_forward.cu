// SPDX-License-Identifier: Apache-2.0
// One block a tile, one thread a ray; Gaussians are staged in shared memory a batch at a time.
#include "rows.cuh"

namespace nurec::cuda {
namespace {

struct State {
    float T = 1, distance = 0, median = 0;
    float features[MAX_FEATURES] = {};
};

constexpr int AHEAD = 1;  // Gaussians whose responses are computed together

__device__ void blend_one(float const* features, float alpha, float t, State& s, bool& open) {
    float const before = s.T;
    float const w = blend_weight(alpha, t, s.T, open);
    if (w == 0) return;
    for (int c = 0; c < MAX_FEATURES; ++c) s.features[c] += w * features[c];
    s.distance += w * t;
    if (before > 0.5f && s.T <= 0.5f) s.median = t;
}

// The next AHEAD Gaussians of n.
template <bool MOVING>
__device__ void blend_next(Row const* g, int n, Ray<float> const& ray, State& s, bool& open) {
    float alpha[AHEAD], t[AHEAD];
#pragma unroll
    for (int v = 0; v < AHEAD; ++v) {
        Row const& row = g[smaller(v, n - 1)];
        Response<float> const at = respond<MOVING>(row.frame, row.opacity, ray);
        alpha[v] = at.alpha, t[v] = at.t;
    }
#pragma unroll
    for (int v = 0; v < AHEAD; ++v)
        if (v < n) blend_one(g[v].features, alpha[v], t[v], s, open);
}

template <bool MOVING>
__global__ void __launch_bounds__(TILE_RAYS) renderForward(RenderParams p, RenderOutputs out) {
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
        for (int k = 0; k < n && open; k += AHEAD) blend_next<MOVING>(batch + k, n - k, ray, s, open);
    }
    if (i < 0) return;
#pragma unroll
    for (int c = 0; c < MAX_FEATURES; ++c)
        if (c < p.n_features) out.features[p.n_features * i + c] = s.features[c];
    out.distance[i] = s.distance, out.transmittance[i] = s.T, out.median[i] = s.median;
}

}  // namespace

void render_forward(RenderParams const& p, RenderOutputs const& out, cudaStream_t stream) {
    if (p.g.n) rows_kernel<<<blocks_for(p.g.n), THREADS, 0, stream>>>(p);
    if (!p.n_tiles) return;
    auto const blocks = static_cast<unsigned>(p.n_tiles);
    if (p.moving)
        renderForward<true><<<blocks, TILE_RAYS, 0, stream>>>(p, out);
    else
        renderForward<false><<<blocks, TILE_RAYS, 0, stream>>>(p, out);
}

}  // namespace nurec::cuda
