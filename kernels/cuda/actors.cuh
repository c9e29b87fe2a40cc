// SPDX-License-Identifier: Apache-2.0
// What moving Gaussians with their tracks takes, forward and backward: the block of rows that is of one track, its
// poses, and rows of three numbers.
//
// A block has up to `size` Gaussians of one track, one a thread at a time. Its warps find the poses first, one query
// time a warp, into shared memory. That is a chain of loads, each waiting for the one before: where there are many
// Gaussians, a block has several for each thread, so that it is gone through less often.
#pragma once

#include "../math/actors.cuh"
#include "actors.h"
#include "triples.cuh"
#include "warp.cuh"

namespace nurec::cuda {

constexpr int WARP = 32, WARPS = THREADS / WARP;  // as many query times at once as there are warps
constexpr int NUMBERS = sizeof(MovingPose<float>) / sizeof(float);
constexpr int64_t BLOCKS = 512;  // that a large GPU has room for at once, four on each of 128 multiprocessors
constexpr int64_t MOST = 16;     // rows a thread
static_assert(NUMBERS == 13 && sizeof(PosePair<float>) == 14 * sizeof(float));

// As few rows a thread as make no more than BLOCKS of them, of which every track has one that is not full.
inline int64_t block_size(Actors const& in) {
    int64_t const full = THREADS * larger(BLOCKS - in.tracks, BLOCKS / 4);
    return THREADS * larger<int64_t>(1, smaller(MOST, (in.n + full - 1) / full));
}

__device__ inline int lane() {
    return int(threadIdx.x) % WARP;
}

__device__ inline int warp() {
    return int(threadIdx.x) / WARP;
}

__device__ inline Quat<float> load4(float const* a, int64_t i) {
    float4 const q = reinterpret_cast<float4 const*>(a)[i];
    return {q.x, q.y, q.z, q.w};
}

__device__ inline void store4(float* a, int64_t i, Quat<float> q) {
    reinterpret_cast<float4*>(a)[i] = make_float4(q.w, q.x, q.y, q.z);
}

// How many of begin to end are `before`: the first ones. Found by a whole warp, which looks at PROBES for each lane at
// a time, so that up to 384 wait for memory once.
template <class Before>
__device__ int64_t count_before(int64_t begin, int64_t end, Before before) {
    constexpr int PROBES = 12;
    int64_t const first = begin;
    while (begin < end) {
        int64_t const step = (end - begin + PROBES * WARP - 1) / (PROBES * WARP);
        unsigned found = 0;
#pragma unroll
        for (int k = 0; k < PROBES; ++k) {
            int64_t const last = begin + (k * WARP + lane() + 1) * step - 1;
            found += unsigned(last < end) & unsigned(before(smaller(last, end - 1)));
        }
        begin += step * __reduce_add_sync(ALL_LANES, found);
        end = smaller(end, begin + step - 1);
    }
    return begin - first;
}

// The rows of one track that this block moves, begin to end, counted from row `first`.
struct Block {
    int64_t track, first;
    int begin, end;

    __device__ bool has(int i) const { return i >= begin && i < end; }
    __device__ int start() const { return begin - begin % THREADS; }  // where thread 0 begins
};

__device__ inline Block my_block(Actors const& in, int64_t size) {
    auto const before = [&](int64_t k) { return first_block(in.starts[k], k, size) <= blockIdx.x; };
    int64_t const k = count_before(0, in.tracks, before) - 1, first = (blockIdx.x - k) * size;
    return {k, first, int(larger<int64_t>(in.starts[k] - first, 0)), int(smaller(in.starts[k + 1] - first, size))};
}

// Three numbers a lane, to rows of 12 bytes, row `first` of the block by thread 0: written as they are, every
// instruction would touch all sectors of the warp's 384 bytes. They go through shared memory and out in runs of 128.
__device__ inline void store3(float* to, float* stage, Block const& block, int first, Vec3<float> v) {
    stage[3 * lane()] = v.x, stage[3 * lane() + 1] = v.y, stage[3 * lane() + 2] = v.z;
    __syncwarp();
    first += warp() * WARP;
    int const begin = 3 * (block.begin - first), end = 3 * (block.end - first);
    to += 3 * (block.first + first);
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        int const i = k * WARP + lane();
        if (i >= begin && i < end) to[i] = stage[i];
    }
    __syncwarp();
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
    int64_t const passed = count_before(begin, end, [&](int64_t m) { return in.key_times[m] <= time; });
    return keys_around(in.key_times, begin, end, passed, time);
}

__device__ inline Pose<float> key_pose(Actors const& in, int64_t key) {
    return {load4(in.quaternions, key), load3(in.translations, key)};
}

// This warp's pose of the queries from `first` on.
__device__ inline void find_pose(Actors const& in, int64_t track, int64_t first, MovingPose<float>* poses) {
    if (first + warp() >= in.queries) return;
    Keys const keys = find_keys(in, track, first + warp());
    auto const pose =
        pose_at(key_pose(in, keys.before), key_pose(in, keys.after), float(keys.fraction), float(keys.rate));
    if (lane() == 0) poses[warp()] = pose;
}

}  // namespace nurec::cuda
