// SPDX-License-Identifier: Apache-2.0
// Prefix sums over blocks in one launch, by decoupled look-back (Merrill and Garland 2016). A tile's state is 0, then
// AGGREGATE with the tile's own count, then PREFIX with the count of all tiles up to and including it.
//
// Blocks spin on the states of earlier tiles. This cannot deadlock: fetch_tile hands out tiles in ascending order, so
// the block of an earlier tile has already started, and a block publishes its AGGREGATE before it waits for others.
#pragma once

#include <cstdint>

#include "warp.cuh"

namespace nurec::cuda {

constexpr uint64_t AGGREGATE = uint64_t(1) << 62, PREFIX = uint64_t(2) << 62, COUNT_MASK = AGGREGATE - 1;

__device__ inline uint64_t read_state(uint64_t const* states, int64_t tile) {
    return tile < 0 ? PREFIX : *static_cast<uint64_t const volatile*>(states + tile);
}

__device__ inline uint64_t wait_for_state(uint64_t const* state, uint64_t least) {
    uint64_t found;
    do found = read_state(state, 0);
    while (found < least);
    return found;
}

constexpr int LOOK_BACK_WINDOWS = 4;  // groups of 32 tiles that are read together

// Returns the count of all tiles before this one; its own count is `mine`. One warp calls it, after publish_count.
__device__ inline uint64_t prefix_before(uint64_t* states, int64_t tile, uint64_t mine) {
    int const lane = int(threadIdx.x) % 32;
    uint64_t before = 0;
    bool found = tile == 0;
    for (int64_t last = tile - 1 - lane; !found; last -= 32 * LOOK_BACK_WINDOWS) {
        uint64_t seen[LOOK_BACK_WINDOWS];
#pragma unroll
        for (int k = 0; k < LOOK_BACK_WINDOWS; ++k) seen[k] = read_state(states, last - 32 * k);
#pragma unroll
        for (int k = 0; k < LOOK_BACK_WINDOWS; ++k) {
            if (found) continue;
            while (seen[k] < AGGREGATE) seen[k] = read_state(states, last - 32 * k);
            unsigned const whole = __ballot_sync(ALL_LANES, seen[k] >= PREFIX);
            before += !whole || lane < __ffs(int(whole)) ? seen[k] & COUNT_MASK : 0;
            found = whole;
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) before += __shfl_xor_sync(ALL_LANES, before, step);
    if (lane == 0 && tile) *static_cast<uint64_t volatile*>(states + tile) = PREFIX | (before + mine);
    return before;
}

// The counts of a block's warps, in shared memory.
template <int WARPS>
struct WarpCounts {
    unsigned counts[WARPS];

    __device__ unsigned before(int warp) const {
        unsigned sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum += w < warp ? counts[w] : 0;
        return sum;
    }
};

// Publishes the count of the block's tile. All threads of a block call it; `mine` is the count of the warp, the same in
// all its lanes; `share` lies in shared memory.
template <int WARPS>
__device__ void publish_count(uint64_t* states, int64_t tile, unsigned mine, WarpCounts<WARPS>& share) {
    if (threadIdx.x % 32 == 0) share.counts[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0)
        *static_cast<uint64_t volatile*>(states + tile) = (tile ? AGGREGATE : PREFIX) | share.before(WARPS);
}

// Returns where a warp's entries begin: after those of all earlier tiles and of the block's earlier warps. All threads
// of a block call it, after publish_count. Work done between the two calls shortens the wait.
template <int WARPS>
__device__ int64_t warp_offset(uint64_t* states, int64_t tile, WarpCounts<WARPS> const& share) {
    __shared__ uint64_t before;
    int const warp = int(threadIdx.x) / 32;
    if (warp == 0) {
        uint64_t const found = prefix_before(states, tile, share.before(WARPS));
        if (threadIdx.x == 0) before = found;
    }
    __syncthreads();
    return int64_t(before) + share.before(warp);
}

template <int WARPS>
__device__ int64_t warp_offset(uint64_t* states, int64_t tile, unsigned mine) {
    __shared__ WarpCounts<WARPS> share;
    publish_count(states, tile, mine, share);
    return warp_offset(states, tile, share);
}

// Returns the next tile that no block has taken. All threads of a block call it.
__device__ inline int64_t fetch_tile(unsigned* next) {
    __shared__ unsigned tile;
    if (threadIdx.x == 0) tile = atomicAdd(next, 1u);
    __syncthreads();
    return tile;
}

struct WarpOffsets {
    int64_t mine, all;  // where this lane's entries begin, and where those of all lanes end
};

// Exclusive prefix sum over the lanes of a warp, starting at `at`.
__device__ inline WarpOffsets warp_offsets(int64_t at, int n) {
    int sum = n;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int const other = __shfl_up_sync(ALL_LANES, sum, step);
        if (int(threadIdx.x % 32) >= step) sum += other;
    }
    return {at + sum - n, at + __shfl_sync(ALL_LANES, sum, 31)};
}

// Returns the sum of n over all threads of earlier tiles and over the block's earlier threads. All threads of the block
// that has this tile call it.
template <int WARPS>
__device__ int64_t thread_offset(uint64_t* states, int64_t tile, int n) {
    WarpOffsets const place = warp_offsets(0, n);
    return warp_offset<WARPS>(states, tile, unsigned(place.all)) + place.mine;
}

}  // namespace nurec::cuda
