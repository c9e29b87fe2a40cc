// SPDX-License-Identifier: Apache-2.0
// Blends whole lists, one lane a ray, until all rays of the warp have ended.
#include "../../common/sort.h"
#include "../blend/blend_rays.cuh"
#include "views.h"

namespace nurec::cuda {
namespace {

constexpr int LENGTH_BITS = 6;  // that a key needs: 0 to 32

// Writes a key by the binary digits of a list's length, longest first, so that no long list starts late. Neighbouring
// lists of about the same length stay together and read the same Gaussians.
__global__ void make_length_keys_kernel(int64_t const* offsets, int64_t n, uint32_t* keys) {
    int64_t const b = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (b < n) keys[b] = uint32_t(__clz(int(offsets[b + 1] - offsets[b])));
}

uint32_t const* longest_first(RenderParams const& p, Queue const& queue) {
    auto const array = [&] { return queue.memory.array<uint32_t>(p.n_tiles); };
    uint32_t *keys = array(), *sorted = array();
    make_length_keys_kernel<<<blocks_for(p.n_tiles), THREADS, 0, queue.stream>>>(p.offsets, p.n_tiles, keys);
    sort_pairs({p.n_tiles, keys, nullptr, nullptr, sorted}, LENGTH_BITS, queue);
    return sorted;
}

struct NoTargets {
    __device__ float range_residual(float t) const { return t; }
};

template <bool MOVING, int C>
__global__ void __launch_bounds__(32 * WARPS, (MOVING && C == 3) ? 6 : 0)
    renderForwardViews_kernel(RenderParams p, RenderOutputs out, float const* rows, uint32_t const* order) {
    __shared__ RowBatches<MOVING, C> batches;
    int64_t const place = (blockIdx.x * int64_t(32 * WARPS) + threadIdx.x) / LANES<C>;
    SegmentRange w = {};
    w.list = place < p.n_tiles ? int64_t(order[place]) : -1;
    if (!__any_sync(ALL_LANES, w.list >= 0)) return;
    if (w.list >= 0) {
        int64_t const begin = p.offsets[w.list];
        w.entries = p.members + begin, w.n = int(p.offsets[w.list + 1] - begin);
    }
    LaneRay const ray = load_lane_ray<MOVING, C>(p, w);
    BlendState s;
    bool open = ray.i >= 0;
    for_rows<C == 3 ? 3 : 4>(
        batches, rows, w, ray, [&] { return open; },
        [&](auto const& g, RayResponse const& at) { blend_one(g, at, NoTargets(), s, open); });
    store_ray<C>(out, ray.i, s);
}

}  // namespace

void render_whole(RenderParams const& p, RenderOutputs const& out, float const* rows, Queue const& queue) {
    if (!p.n_tiles) return;
    auto const kernel = p.n_features == 2 ? renderForwardViews_kernel<true, 2>
                        : p.moving        ? renderForwardViews_kernel<true, 3>
                                          : renderForwardViews_kernel<false, 3>;
    int64_t const each = 32 * WARPS / rays_with(p.n_features);
    auto const blocks = static_cast<unsigned>((p.n_tiles + each - 1) / each);
    kernel<<<blocks, 32 * WARPS, 0, queue.stream>>>(p, out, rows, longest_first(p, queue));
}

}  // namespace nurec::cuda
