// SPDX-License-Identifier: Apache-2.0
// Sums over all blocks before, in one launch: where a tile's entries begin, while other blocks still count theirs.
// Tiles are handed out in their order, and a block that has one is running: so whoever waits for those before its own
// waits for blocks that run. A tile's state is 0, then OWN with the entries of the tile, then ALL with those of all
// tiles up to it (decoupled look-back, Merrill and Garland 2016).
#pragma once

#include <cstdint>

#include "warp.cuh"

namespace nurec::cuda {

constexpr uint64_t OWN = uint64_t(1) << 62, ALL = uint64_t(2) << 62, COUNT = OWN - 1;

__device__ inline uint64_t state_at(uint64_t const* states, int64_t tile) {
    return tile < 0 ? ALL : *static_cast<uint64_t const volatile*>(states + tile);
}

__device__ inline uint64_t state_of(uint64_t const* state, uint64_t least) {
    uint64_t found;
    do found = state_at(state, 0);
    while (found < least);
    return found;
}

constexpr int WINDOWS = 4;  // of 32 tiles that are looked at together

// By one warp: entries of all tiles before this one, which has `mine`, as others have been told.
__device__ inline uint64_t entries_before(uint64_t* states, int64_t tile, uint64_t mine) {
    int const lane = int(threadIdx.x) % 32;
    uint64_t before = 0;
    bool found = tile == 0;
    for (int64_t last = tile - 1 - lane; !found; last -= 32 * WINDOWS) {
        uint64_t seen[WINDOWS];
#pragma unroll
        for (int k = 0; k < WINDOWS; ++k) seen[k] = state_at(states, last - 32 * k);
#pragma unroll
        for (int k = 0; k < WINDOWS; ++k) {
            if (found) continue;
            while (seen[k] < OWN) seen[k] = state_at(states, last - 32 * k);
            unsigned const whole = __ballot_sync(ALL_LANES, seen[k] >= ALL);
            before += !whole || lane < __ffs(int(whole)) ? seen[k] & COUNT : 0;
            found = whole;
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) before += __shfl_xor_sync(ALL_LANES, before, step);
    if (lane == 0 && tile) *static_cast<uint64_t volatile*>(states + tile) = ALL | (before + mine);
    return before;
}

// Entries of a block's warps.
template <int WARPS>
struct Share {
    unsigned counts[WARPS];

    __device__ unsigned before(int warp) const {
        unsigned sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum += w < warp ? counts[w] : 0;
        return sum;
    }
};

// By a block together: others learn how many entries its tile has. `mine`: of the warp, the same in all its lanes;
// `share`: in shared memory.
template <int WARPS>
__device__ void tell_others(uint64_t* states, int64_t tile, unsigned mine, Share<WARPS>& share) {
    if (threadIdx.x % 32 == 0) share.counts[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) *static_cast<uint64_t volatile*>(states + tile) = (tile ? OWN : ALL) | share.before(WARPS);
}

// By a block together, once others have been told, and the sooner the longer it waits: where a warp's entries begin,
// after those of all tiles before the block's, and of the warps before it.
template <int WARPS>
__device__ int64_t warp_begin(uint64_t* states, int64_t tile, Share<WARPS> const& share) {
    __shared__ uint64_t before;
    int const warp = int(threadIdx.x) / 32;
    if (warp == 0) {
        uint64_t const found = entries_before(states, tile, share.before(WARPS));
        if (threadIdx.x == 0) before = found;
    }
    __syncthreads();
    return int64_t(before) + share.before(warp);
}

template <int WARPS>
__device__ int64_t warp_begin(uint64_t* states, int64_t tile, unsigned mine) {
    __shared__ Share<WARPS> share;
    tell_others(states, tile, mine, share);
    return warp_begin(states, tile, share);
}

// The next tile that no block has. By a block together.
__device__ inline int64_t next_tile(unsigned* next) {
    __shared__ unsigned tile;
    if (threadIdx.x == 0) tile = atomicAdd(next, 1u);
    __syncthreads();
    return tile;
}

struct Placed {
    int64_t mine, all;  // before this lane's, and behind those of all lanes
};

// Of numbers that a warp's lanes have.
__device__ inline Placed placed_from(int64_t at, int n) {
    int sum = n;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int const other = __shfl_up_sync(ALL_LANES, sum, step);
        if (int(threadIdx.x % 32) >= step) sum += other;
    }
    return {at + sum - n, at + __shfl_sync(ALL_LANES, sum, 31)};
}

// The sum of n over all threads of the tiles before, and of the block's before this one. By a block together, which has
// this tile.
template <int WARPS>
__device__ int64_t begin_of(uint64_t* states, int64_t tile, int n) {
    Placed const place = placed_from(0, n);
    return warp_begin<WARPS>(states, tile, unsigned(place.all)) + place.mine;
}

}  // namespace nurec::cuda
