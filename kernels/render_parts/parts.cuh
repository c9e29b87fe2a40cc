// SPDX-License-Identifier: Apache-2.0
// A warp's part of a list, and the rows of its Gaussians, staged by the warp for itself, 32 at a time.
#pragma once

#include "../common/warp.cuh"
#include "part_rows.cuh"

namespace nurec::cuda {

constexpr int WARPS = 4;  // of a block; they share nothing

struct Work {
    int64_t part, bundle, first;  // first: part of the bundle
    int64_t const* list;
    int n, parts;  // entries; parts of the bundle; 0: there is nothing to do
};

__device__ inline Work my_work(RenderParams const& p, Parts const& all) {
    Work w = {};
    w.part = blockIdx.x * int64_t(WARPS) + threadIdx.x / 32;
    w.bundle = w.part < all.most ? all.bundle[w.part] : -1;
    if (w.bundle < 0) return w;
    w.first = all.first[w.bundle], w.parts = int(all.first[w.bundle + 1] - w.first);
    int64_t const begin = p.offsets[w.bundle], length = p.offsets[w.bundle + 1] - begin, k = w.part - w.first;
    int64_t const from = length * k / w.parts, to = length * (k + 1) / w.parts;
    w.list = p.gaussians + begin + from, w.n = int(to - from);
    return w;
}

__device__ inline int64_t ray_of(RenderParams const& p, Work const& w) {
    return p.rays[32 * w.bundle + threadIdx.x % 32];
}

__device__ inline float& left_of(RenderParams const& p, Parts const& all, int64_t part, int line) {
    return all.left[((FEATURES + p.n_features) * part + line) * 32 + threadIdx.x % 32];
}

// What passes through the parts before this one.
__device__ inline float passed(RenderParams const& p, Parts const& all, Work const& w) {
    float T = 1;
    for (int64_t j = w.first; j < w.part; ++j) T *= left_of(p, all, j, PASSES);
    return T;
}

// Consecutive lanes copy consecutive 16 bytes. `member` is the lane's own Gaussian, the k-th of at most MOST.
template <int MOST, class Row>
__device__ inline void stage_rows(Row const* rows, int member, int n, Row* to) {
    constexpr int VECTORS = sizeof(Row) / 16;
    int const lane = int(threadIdx.x) % 32;
    auto* vectors = reinterpret_cast<float4*>(to);
#pragma unroll
    for (int q = 0; q < (MOST * VECTORS + 31) / 32; ++q) {
        int const vector = lane + 32 * q, k = vector / VECTORS;
        int const whose = __shfl_sync(ALL_LANES, member, k % 32);
        if (k < n) vectors[vector] = reinterpret_cast<float4 const*>(rows + whose)[vector % VECTORS];
    }
    __syncwarp();
}

inline unsigned blocks_of(Parts const& parts) {
    return static_cast<unsigned>((parts.most + WARPS - 1) / WARPS);
}

}  // namespace nurec::cuda
