// SPDX-License-Identifier: Apache-2.0
// Accumulates the gradients of a view's rays. Of a Gaussian that the view does not see, only a byte that says so is
// read or written.
#include "../../common/triples.cuh"
#include "../../common/visible.cuh"
#include "../../project/moment_row.cuh"
#include "gaussian_backward.h"

namespace nurec::cuda {
namespace {

constexpr int ROW_VECTORS = sizeof(MomentRow) / sizeof(float4);

// A thread has as many vectors of a block's Gaussians as a Gaussian has: their loads overlap.
__device__ void clear_block(int64_t n, int64_t first, uint8_t const* visible, float4* vectors, uint8_t* seen) {
    bool there[ROW_VECTORS];
#pragma unroll
    for (int u = 0; u < ROW_VECTORS; ++u) {
        int64_t const i = first + (threadIdx.x + u * THREADS) / ROW_VECTORS;
        there[u] = i < n && (!visible || visible[i]);
    }
#pragma unroll
    for (int u = 0; u < ROW_VECTORS; ++u) {
        int64_t const k = ROW_VECTORS * first + threadIdx.x + u * THREADS, i = k / ROW_VECTORS;
        if (k % ROW_VECTORS == 0 && i < n) seen[i] = there[u];
        if (there[u]) vectors[k] = make_float4(0, 0, 0, 0);
    }
}

__global__ void clear_moments_kernel(VisibleBlocks blocks, int64_t n, uint8_t const* visible, float4* vectors,
                                     uint8_t* seen) {
    for_visible_blocks(blocks, n, [&](int64_t first) { clear_block(n, first, visible, vectors, seen); });
}

__global__ void __launch_bounds__(THREADS)
    gather_feature_grads_kernel(VisibleBlocks blocks, int64_t n, MomentRow const* moments, uint8_t const* seen,
                                float* d_features) {
    static_assert(MAX_FEATURES == 3);
    __shared__ float4 staged[THREADS / 32][24];
    for_visible_blocks(blocks, n, [&](int64_t first) {
        int64_t const i = first + threadIdx.x;
        Vec3<float> const d = i < n && seen[i] ? load3(moments[i].features, 0) : Vec3<float>{0, 0, 0};
        store3_together(d_features, i, n, d, staged[threadIdx.x / 32]);
    });
}

}  // namespace

void render_backward_accumulate(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d,
                                Segments const& segments, MomentRow* moments, uint8_t* seen, Queue const& queue) {
    int64_t const n = p.g.n;
    if (!n) return;
    auto* const vectors = reinterpret_cast<float4*>(moments);
    unsigned const blocks = blocks_for(p.blocks, n);
    clear_moments_kernel<<<blocks, THREADS, 0, queue.stream>>>(p.blocks, n, p.visible, vectors, seen);
    accumulate_segments(p, out, d, segments, moments, queue);
    if (!d.features) return;
    gather_feature_grads_kernel<<<blocks, THREADS, 0, queue.stream>>>(p.blocks, n, moments, seen, d.features);
}

}  // namespace nurec::cuda
