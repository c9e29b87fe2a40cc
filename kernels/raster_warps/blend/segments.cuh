// SPDX-License-Identifier: Apache-2.0
// A group of P lanes takes one segment of a list, and stages the rows of its Gaussians for itself.
#pragma once

#include "../../common/warp.cuh"
#include "segments.h"
#include "../../project/gaussian_row.cuh"

namespace nurec::cuda {

constexpr int WARPS = 4;  // of a block; they share no data

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

struct SegmentRange {
    int64_t segment, list, first;  // first: the list's first segment
    int const* entries;
    int n, segments;  // entries; segments of the list, 0: nothing to do
};

// Returns the segment of this lane's group, if each group of the grid takes one.
template <int C>
__device__ int64_t own_segment() {
    return blockIdx.x * int64_t(WARPS * GROUPS<C>) + threadIdx.x / LANES<C>;
}

__device__ inline int parts_of(int64_t entries, int64_t length) {
    return entries > length ? (int(entries) + int(length) - 1) / int(length) : 1;
}

// Returns the range of a segment; an empty one if there is no such segment.
__device__ inline SegmentRange segment_at(RenderParams const& p, Segments const& all, int64_t segment) {
    SegmentRange w = {};
    w.segment = segment;
    w.list = w.segment < all.most ? all.list[w.segment] : -1;
    w.first = w.segment;
    if (w.list < 0) return w;
    int64_t const begin = p.offsets[w.list], length = p.offsets[w.list + 1] - begin;
    w.first = all.first[w.list], w.segments = parts_of(length, all.length);
    int64_t const k = w.segment - w.first;
    int64_t from = 0, to = length;
    if (w.segments > 1) from = length * k / w.segments, to = length * (k + 1) / w.segments;
    w.entries = p.members + begin + from, w.n = int(to - from);
    return w;
}

// Returns a ticket that no other warp gets, in ascending order. `next` [1] counts from 0. One warp calls it.
__device__ inline int fetch_work(unsigned* next) {
    return int(__shfl_sync(ALL_LANES, threadIdx.x % 32 == 0 ? atomicAdd(next, 1u) : 0u, 0));
}

// Calls work(segment) for segments that no other warp takes. One warp calls it.
template <class Function>
__device__ void for_each_segment(RenderParams const& p, Segments const& all, unsigned* next, Function const& work) {
    for (int64_t segment; (segment = fetch_work(next)) < all.first[p.n_tiles]; __syncwarp()) work(segment);
}

// Returns the ray of this lane; -1: none.
template <int C>
__device__ int64_t ray_of(RenderParams const& p, SegmentRange const& w) {
    return GROUPS<C> > 1 && w.list < 0 ? -1 : p.rays[LANES<C> * w.list + lane_of_group<C>()];
}

template <int C>
__device__ float& segment_field(Segments const& all, int64_t segment, int line) {
    return all.fields[((FEATURES + C) * segment + line) * LANES<C> + lane_of_group<C>()];
}

// Returns the transmittance of all earlier segments of the list.
template <int C>
__device__ float transmittance_before(Segments const& all, SegmentRange const& w) {
    float T = 1;
    for (int64_t j = w.first; j < w.segment; ++j) T *= segment_field<C>(all, j, TRANSMITTANCE);
    return T;
}

// Copies n rows of Gaussians to shared memory, consecutive lanes consecutive 16 bytes. Each group of the warp copies
// its own: lane k passes the group's k-th Gaussian, of MAX_ROWS at most, as `member`.
template <int C, int MAX_ROWS, class Row>
__device__ void stage_rows(Row const* rows, int member, int n, Row* to) {
    constexpr int VECTORS = sizeof(Row) / 16, P = LANES<C>;
    auto* vectors = reinterpret_cast<float4*>(to);
#pragma unroll
    for (int q = 0; q < (MAX_ROWS * VECTORS + P - 1) / P; ++q) {
        int const vector = lane_of_group<C>() + P * q, k = vector / VECTORS;
        int const whose = __shfl_sync(ALL_LANES, member, P * group_of_warp<C>() + k % P);
        if (k < n) vectors[vector] = reinterpret_cast<float4 const*>(rows + whose)[vector % VECTORS];
    }
    __syncwarp();
}

template <int C>
unsigned blocks_of(Segments const& segments) {
    constexpr int GROUPS_PER_BLOCK = WARPS * GROUPS<C>;
    return static_cast<unsigned>((segments.most + GROUPS_PER_BLOCK - 1) / GROUPS_PER_BLOCK);
}

// Returns the blocks of a persistent kernel: no more than run at once, since warps fetch segments until none is left.
template <int C>
unsigned persistent_blocks(Segments const& segments, int resident) {
    return std::min(blocks_of<C>(segments), unsigned(resident * multiprocessors()));
}

}  // namespace nurec::cuda
