// SPDX-License-Identifier: Apache-2.0
// The part of a list that a group of lanes takes, P neighbours of a warp, and the rows of its Gaussians, which the
// group stages for itself.
#pragma once

#include "../common/warp.cuh"
#include "part_rows.cuh"

namespace nurec::cuda {

constexpr int WARPS = 4;  // of a block; they share nothing

template <int C>
constexpr int LANES = rays_with(C);  // P
template <int C>
constexpr int GROUPS = 32 / LANES<C>;  // of a warp

template <int C>
__device__ int lane_of_group() {
    return int(threadIdx.x % LANES<C>);
}

template <int C>
__device__ int group_of_warp() {
    return GROUPS<C> == 1 ? 0 : int(threadIdx.x % 32) / LANES<C>;
}

struct Work {
    int64_t part, bundle, first;  // first: part of the bundle
    int const* list;
    int n, parts;  // entries; parts of the bundle; 0: there is nothing to do
};

// Of a lane's group, with as many parts as there are groups.
template <int C>
__device__ int64_t own_part() {
    return blockIdx.x * int64_t(WARPS * GROUPS<C>) + threadIdx.x / LANES<C>;
}

__device__ inline int parts_of(int64_t entries, int64_t length) {
    return entries > length ? (int(entries) + int(length) - 1) / int(length) : 1;
}

// Nothing where there is no such part.
__device__ inline Work work_at(RenderParams const& p, Parts const& all, int64_t part) {
    Work w = {};
    w.part = part;
    w.bundle = w.part < all.most ? all.bundle[w.part] : -1;
    w.first = w.part;
    if (w.bundle < 0) return w;
    int64_t const begin = p.offsets[w.bundle], length = p.offsets[w.bundle + 1] - begin;
    w.first = all.first[w.bundle], w.parts = parts_of(length, all.length);
    int64_t const k = w.part - w.first;
    int64_t from = 0, to = length;
    if (w.parts > 1) from = length * k / w.parts, to = length * (k + 1) / w.parts;
    w.list = p.members + begin + from, w.n = int(to - from);
    return w;
}

// By a warp: a number that no other warp takes, as `next` [1] says, 0 at first.
__device__ inline int fetch_work(unsigned* next) {
    return int(__shfl_sync(ALL_LANES, threadIdx.x % 32 == 0 ? atomicAdd(next, 1u) : 0u, 0));
}

// By a warp: calls work(part) for parts that no other warp takes.
template <class Function>
__device__ void take_parts(RenderParams const& p, Parts const& all, unsigned* next, Function const& work) {
    for (int64_t part; (part = fetch_work(next)) < all.first[p.n_tiles]; __syncwarp()) work(part);
}

// -1: none, also where there is nothing to do.
template <int C>
__device__ int64_t ray_of(RenderParams const& p, Work const& w) {
    return GROUPS<C> > 1 && w.bundle < 0 ? -1 : p.rays[LANES<C> * w.bundle + lane_of_group<C>()];
}

template <int C>
__device__ float& left_of(Parts const& all, int64_t part, int line) {
    return all.left[((FEATURES + C) * part + line) * LANES<C> + lane_of_group<C>()];
}

// What passes through the parts before this one.
template <int C>
__device__ float passed(Parts const& all, Work const& w) {
    float T = 1;
    for (int64_t j = w.first; j < w.part; ++j) T *= left_of<C>(all, j, PASSES);
    return T;
}

// By a warp: each group copies `n` rows to its place, consecutive lanes consecutive 16 bytes. `member` is the lane's
// own Gaussian, the k-th of at most MOST of the group.
template <int C, int MOST, class Row>
__device__ void stage_rows(Row const* rows, int member, int n, Row* to) {
    constexpr int VECTORS = sizeof(Row) / 16, P = LANES<C>;
    auto* vectors = reinterpret_cast<float4*>(to);
#pragma unroll
    for (int q = 0; q < (MOST * VECTORS + P - 1) / P; ++q) {
        int const vector = lane_of_group<C>() + P * q, k = vector / VECTORS;
        int const whose = __shfl_sync(ALL_LANES, member, P * group_of_warp<C>() + k % P);
        if (k < n) vectors[vector] = reinterpret_cast<float4 const*>(rows + whose)[vector % VECTORS];
    }
    __syncwarp();
}

template <int C>
unsigned blocks_of(Parts const& parts) {
    constexpr int EACH = WARPS * GROUPS<C>;
    return static_cast<unsigned>((parts.most + EACH - 1) / EACH);
}

// No more than run at once, where warps go on to parts that nobody has taken.
template <int C>
unsigned blocks_that_take(Parts const& parts, int resident) {
    return std::min(blocks_of<C>(parts), unsigned(resident * multiprocessors()));
}

}  // namespace nurec::cuda
