// SPDX-License-Identifier: Apache-2.0
// Parts of moving Gaussians with their tracks, forward and backward: the block of rows of one track, its poses, and
// rows of three numbers.
//
// A block has up to `size` Gaussians of one track, one a thread at a time. Its warps find the poses first, one query
// time a warp, into shared memory. That is a chain of loads, each waiting for the one before: where there are many
// Gaussians, a block has several for each thread, so that it is gone through less often, and all blocks together ask
// for the keyframes before they begin.
#pragma once

#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "../common/warp.cuh"
#include "../math/actors.cuh"
#include "move_actors.h"

namespace nurec::cuda {

constexpr int BLOCK_THREADS = 128;                      // threads of a block
constexpr int WARP = 32, WARPS = BLOCK_THREADS / WARP;  // as many query times at once as there are warps
constexpr int POSE_FLOATS = sizeof(MovingPose<float>) / sizeof(float);
constexpr int64_t MAX_ROWS_PER_THREAD = 16;  // rows a thread
static_assert(POSE_FLOATS == 13 && sizeof(PosePair<float>) == 14 * sizeof(float));
static_assert(offsetof(Pose<float>, q) == 0 && offsetof(Pose<float>, t) == 4 * sizeof(float));

// Rows of a block, whole warps: as few as make no more blocks than the GPU can run at once, `resident` on each
// multiprocessor; every track has one that is not full.
inline int64_t block_size(Actors const& in, int64_t resident) {
    int64_t const blocks = resident * multiprocessors(), full = WARP * larger(blocks - in.tracks, blocks / 4);
    return WARP * larger<int64_t>(WARPS, smaller(MAX_ROWS_PER_THREAD * WARPS, (in.n + full - 1) / full));
}

__device__ inline int lane() {
    return int(threadIdx.x) % WARP;
}

__device__ inline int warp() {
    return int(threadIdx.x) / WARP;
}

// Number of the first of n numbers that are `before`. A whole warp searches, with PROBES a lane at a time, so that up
// to 32 PROBES wait for memory once.
template <int PROBES, class Before>
__device__ int count_before(int n, Before before) {
    int begin = 0, end = n;
    while (begin < end) {
        int const step = (end - begin + PROBES * WARP - 1) / (PROBES * WARP);
        unsigned found = 0;
#pragma unroll
        for (int k = 0; k < PROBES; ++k) {
            int const last = begin + (k * WARP + lane() + 1) * step - 1;
            found += unsigned(last < end) & unsigned(before(smaller(last, end - 1)));
        }
        begin += step * int(__reduce_add_sync(ALL_LANES, found));
        end = smaller(end, begin + step - 1);
    }
    return begin;
}

// The rows of one track that this block moves, begin to end, counted from row `first`.
struct Block {
    int64_t track, first;
    int begin, end;
    bool leads;  // the track's first block

    __device__ bool has(int i) const { return i >= begin && i < end; }
    __device__ int start() const { return begin - begin % WARP; }  // where thread 0 begins
};

__device__ inline Block my_block(Actors const& in, int64_t size) {
    auto const before = [&](int k) { return begins_by(in.starts[k], k, blockIdx.x, size); };
    int64_t const k = count_before<4>(int(in.tracks), before) - 1, first = (blockIdx.x - k) * size;
    int64_t const begin = in.starts[k] - first, end = in.starts[k + 1] - first;
    return {k, first, int(larger<int64_t>(begin, 0)), int(smaller(end, size)), begin >= 0};
}

// Rows first to first + 31 of the block, which a warp takes.
struct WarpRows {
    int first, begin, end;  // those that are the block's, counted from `first`

    __device__ bool all() const { return begin <= 0 && end >= WARP; }
    __device__ bool mine() const { return lane() >= begin && lane() < end; }
};

__device__ inline WarpRows warp_rows(Block const& block, int first) {
    first += warp() * WARP;
    return {first, block.begin - first, block.end - first};
}

// Three numbers a lane, by way of shared memory (__syncwarp in between). They go out in runs of 128 bytes: written by
// each lane as they are, every instruction would touch all sectors of the warp's 384 bytes.
__device__ inline void put3(float* stage, Vec3<float> v) {
    stage[3 * lane()] = v.x, stage[3 * lane() + 1] = v.y, stage[3 * lane() + 2] = v.z;
}

template <bool ALL>
__device__ void copy3(float* to, float const* stage, WarpRows const& rows) {
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        int const i = k * WARP + lane();
        if (ALL || (i >= 3 * rows.begin && i < 3 * rows.end)) to[i] = stage[i];
    }
}

// In the frame of its track.
struct Local {
    Vec3<float> mean;
    Quat<float> quat;  // of any length
};

__device__ inline Local load_local(Actors const& in, Block const& block, int i) {
    return block.has(i) ? Local{load3(in.means, block.first + i), load4(in.quats, block.first + i)} : Local{};
}

// ---- poses, by whole warps

__device__ inline Keys find_keys(Actors const& in, int64_t track, int64_t query) {
    int64_t const begin = in.key_offsets[track], end = in.key_offsets[track + 1];
    double const time = in.times[query];
    double const* const times = in.key_times + begin;
    int const passed = count_before<12>(int(end - begin), [&](int m) { return times[m] <= time; });
    return keys_around(in.key_times, begin, end, passed, time);
}

__device__ inline Pose<float> key_pose(Actors const& in, int64_t key) {
    return {load4(in.quaternions, key), load3(in.translations, key)};
}

// This warp's pose of the queries from `first` on.
__device__ inline MovingPose<float> find_pose(Actors const& in, int64_t track, int64_t first) {
    if (in.key_offsets[track] == in.key_offsets[track + 1]) return {{1, 0, 0, 0}, {}, {}, {}};
    Keys const keys = find_keys(in, track, first + warp());
    return pose_at(key_pose(in, keys.before), key_pose(in, keys.after), float(keys.fraction), float(keys.rate));
}

// ---- loads, issued ahead

constexpr int64_t SECTOR_BYTES = 32;  // bytes that come from memory at once

// Fetches n numbers by all threads of the launch together.
template <class T>
__device__ void fetch(T const* from, int64_t n) {
#ifdef __CUDA_ARCH__
    int64_t const bytes = n * int64_t(sizeof(T)), step = SECTOR_BYTES * int64_t(gridDim.x) * BLOCK_THREADS;
    for (int64_t i = SECTOR_BYTES * (blockIdx.x * int64_t(BLOCK_THREADS) + threadIdx.x); i < bytes; i += step)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(reinterpret_cast<char const*>(from) + i));
#endif
}

// All keyframes: a block knows its own only after it has found its track. Not the rows, which would come first.
__device__ inline void fetch_keys(Actors const& in) {
    fetch(in.key_offsets, in.tracks + 1), fetch(in.key_times, in.keys);
    fetch(in.quaternions, 4 * in.keys), fetch(in.translations, 3 * in.keys);
}

}  // namespace nurec::cuda
