// SPDX-License-Identifier: Apache-2.0
// The loop of renderForward_kernel and renderBackward_kernel, with nothing in it but the decisions.
#include "count_pairs.h"

#include "rows.cuh"

namespace nurec::cuda {
namespace {

template <bool MOVING>
__global__ void __launch_bounds__(TILE_RAYS) count_pairs_kernel(Staged p, PairCounts* out) {
    __shared__ Row batch[BATCH];
    int64_t const i = my_ray(p), begin = p.offsets[blockIdx.x], end = p.offsets[blockIdx.x + 1];
    Ray<float> const ray = load_ray(p, i);
    float T = 1;
    bool open = i >= 0;
    PairCounts counts = {};  // the same in all lanes of a warp
    for (int64_t first = begin; first < end; first += BATCH) {
        if (__syncthreads_count(open) == 0) break;
        int const n = int(end - first < BATCH ? end - first : BATCH);
        if (int(threadIdx.x) < n) copy_row(batch[threadIdx.x], p.rows[p.gaussians[first + threadIdx.x]]);
        __syncthreads();
        for (int k = 0; k < n; ++k) {
            unsigned const looking = __ballot_sync(~0u, open);
            if (looking == 0) break;
            Response<float> const at = respond<MOVING>(batch[k].frame, batch[k].opacity, ray);
            unsigned const used = __ballot_sync(~0u, blend_weight(at.alpha, at.t, T, open) > 0);
            counts.gaussians += 1, counts.open += __popc(looking);
            counts.contributing += __popc(used), counts.useful += used != 0;
        }
    }
    int64_t const warps = (p.rays_per_tile + WARP - 1) / WARP, warp = threadIdx.x / WARP;
    if (threadIdx.x % WARP == 0 && warp < warps) out[blockIdx.x * warps + warp] = counts;
}

}  // namespace

void count_pairs(RenderParams const& given, PairCounts* out, Queue const& queue) {
    Staged const p = staged(given, queue);
    fill_rows(p, queue.stream);
    if (!p.n_tiles) return;
    auto const blocks = static_cast<unsigned>(p.n_tiles);
    if (p.moving)
        count_pairs_kernel<true><<<blocks, TILE_RAYS, 0, queue.stream>>>(p, out);
    else
        count_pairs_kernel<false><<<blocks, TILE_RAYS, 0, queue.stream>>>(p, out);
}

}  // namespace nurec::cuda
