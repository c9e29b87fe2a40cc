// SPDX-License-Identifier: Apache-2.0
// A warp's part of a list, and the rows of its Gaussians, staged by the warp for itself, 32 at a time.
#pragma once

#include "../common/warp.cuh"
#include "../math/travel.cuh"
#include "../render/rows.cuh"
#include "params.h"

namespace nurec::cuda {

constexpr int WARPS = 4;  // of a block; they share nothing
constexpr int ROW_VECTORS = sizeof(Row) / 16;

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

__device__ inline Vec3<float> from_lane(Vec3<float> a, int lane) {
    return {__shfl_sync(ALL_LANES, a.x, lane), __shfl_sync(ALL_LANES, a.y, lane), __shfl_sync(ALL_LANES, a.z, lane)};
}

__device__ inline Ray<float> from_lane(Ray<float> const& a, int lane) {
    return {from_lane(a.d, lane), from_lane(a.r, lane), __shfl_sync(ALL_LANES, a.dt, lane)};
}

// Of the rays of a warp, one a lane, `there` where there is one: from the first to the one that is farthest in time or,
// if all are taken at once, in space.
__device__ inline Travel<float> travel_of(Ray<float> const& mine, bool there) {
    int const lane = int(threadIdx.x) % 32;
    int const first = larger(__ffs(int(__ballot_sync(ALL_LANES, there))) - 1, 0);
    Ray<float> const a = from_lane(mine, first);
    Vec3<float> const off = mine.r - a.r;
    float const late = there ? fabsf(mine.dt - a.dt) : 0.f, away = there ? dot(off, off) : 0.f;
    float const latest = warp_max(late), farthest = warp_max(away);
    bool const last = there && (latest > 0 ? late == latest : away == farthest);
    int const other = __ffs(int(__ballot_sync(ALL_LANES, last))) - 1;
    return travel_between(a, from_lane(mine, other < 0 ? lane : other));
}

// Consecutive lanes copy consecutive 16 bytes. `member` is the lane's own Gaussian, the k-th of at most MOST. Where rays
// travel, rows then go with them.
template <bool MOVING, int MOST>
__device__ inline void stage_rows(Row const* rows, int member, int n, Travel<float> const& along, Row* to) {
    int const lane = int(threadIdx.x) % 32;
    auto* vectors = reinterpret_cast<float4*>(to);
#pragma unroll
    for (int q = 0; q < (MOST * ROW_VECTORS + 31) / 32; ++q) {
        int const vector = lane + 32 * q, k = vector / ROW_VECTORS;
        int const whose = __shfl_sync(ALL_LANES, member, k % 32);
        if (k < n) vectors[vector] = reinterpret_cast<float4 const*>(rows + whose)[vector % ROW_VECTORS];
    }
    __syncwarp();
    if (!MOVING) return;
    if (lane < n) to[lane].frame = travelled(to[lane].frame, along);
    __syncwarp();
}

inline unsigned blocks_of(Parts const& parts) {
    return static_cast<unsigned>((parts.most + WARPS - 1) / WARPS);
}

}  // namespace nurec::cuda
