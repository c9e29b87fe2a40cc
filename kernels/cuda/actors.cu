// SPDX-License-Identifier: Apache-2.0
// A block moves up to 256 Gaussians of one track, one a thread, to all query times. Its warps find the poses first, one
// time a warp, into shared memory, so that a Gaussian is read once and nothing but the results is written.
//
// Backwards, what poses get is added up over a warp by shuffles, over a block in shared memory, and over a track's
// blocks by a second kernel, which takes it on to the keyframes: no atomics, and the same sums in every run.
#include "actors.h"

#include "../math/actors.cuh"
#include "triples.cuh"

namespace nurec::cuda {
namespace {

constexpr int WARP = 32, WARPS = THREADS / WARP;  // as many query times at once as there are warps
constexpr int NUMBERS = sizeof(MovingPose<float>) / sizeof(float);
static_assert(CHUNK == THREADS && NUMBERS == 13 && sizeof(PosePair<float>) == 14 * sizeof(float));

__device__ int lane() {
    return int(threadIdx.x) % WARP;
}

__device__ int warp() {
    return int(threadIdx.x) / WARP;
}

__device__ Quat<float> load4(float const* a, int64_t i) {
    float4 const q = reinterpret_cast<float4 const*>(a)[i];
    return {q.x, q.y, q.z, q.w};
}

__device__ void store4(float* a, int64_t i, Quat<float> q) {
    reinterpret_cast<float4*>(a)[i] = make_float4(q.w, q.x, q.y, q.z);
}

// The rows of one track that this block moves. Row first + threadIdx.x is this thread's.
struct Block {
    int64_t track, first, begin, end;

    __device__ int64_t row() const { return first + threadIdx.x; }
    __device__ bool has(int64_t i) const { return i >= begin && i < end; }
};

__device__ Block my_block(Actors const& in) {
    int64_t const k = track_of_block(in.starts, in.tracks, blockIdx.x), first = (blockIdx.x - k) * CHUNK;
    return {k, first, larger(in.starts[k], first), smaller(in.starts[k + 1], first + CHUNK)};
}

// Three numbers a lane, in rows of 12 bytes: written as they are, every instruction would touch all sectors of the
// warp's 384 bytes. They go through shared memory and out in runs of 128 bytes.
__device__ void store3(float* to, float* stage, Block const& block, Vec3<float> v) {
    stage[3 * lane()] = v.x, stage[3 * lane() + 1] = v.y, stage[3 * lane() + 2] = v.z;
    __syncwarp();
    int64_t const first = block.first + warp() * WARP;
    int const begin = int(3 * (block.begin - first)), end = int(3 * (block.end - first));
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        int const i = k * WARP + lane();
        if (i >= begin && i < end) to[3 * first + i] = stage[i];
    }
    __syncwarp();
}

// ---- poses, by whole warps

__device__ Keys find_keys(Actors const& in, int64_t track, int64_t query) {
    int64_t const begin = in.key_offsets[track], end = in.key_offsets[track + 1];
    double const time = in.times[query];
    unsigned passed = 0;
    for (int64_t m = begin + lane(); m < end; m += WARP) passed += in.key_times[m] <= time;
    return keys_around(in.key_times, begin, end, __reduce_add_sync(~0u, passed), time);
}

__device__ Pose<float> key_pose(Actors const& in, int64_t key) {
    return {load4(in.quaternions, key), load3(in.translations, key)};
}

// This warp's pose of the queries from `first` on.
__device__ void find_pose(Actors const& in, int64_t track, int64_t first, MovingPose<float>* poses) {
    if (first + warp() >= in.queries) return;
    Keys const keys = find_keys(in, track, first + warp());
    auto const pose =
        pose_at(key_pose(in, keys.before), key_pose(in, keys.after), float(keys.fraction), float(keys.rate));
    if (lane() == 0) poses[warp()] = pose;
}

// ---- forward

__global__ void __launch_bounds__(THREADS) move_kernel(Actors in, MovedActors out) {
    __shared__ MovingPose<float> poses[WARPS];
    __shared__ float stage[WARPS][3 * WARP];
    Block const block = my_block(in);
    bool const leads = blockIdx.x == first_block(in.starts[block.track], block.track);
    if (block.begin >= block.end && !leads) return;
    bool const mine = block.has(block.row());
    Vec3<float> const mean = mine ? load3(in.means, block.row()) : Vec3<float>{};
    Quat<float> const quat = mine ? normalized(load4(in.quats, block.row())) : Quat<float>{};
    for (int64_t first = 0; first < in.queries; first += WARPS) {
        __syncthreads();
        find_pose(in, block.track, first, poses);
        __syncthreads();
        int const n = int(smaller<int64_t>(in.queries - first, WARPS));
        if (leads && int(threadIdx.x) < n)
            store4(out.rotations, (first + threadIdx.x) * in.tracks + block.track, poses[threadIdx.x].q);
        for (int j = 0; j < n; ++j) {
            int64_t const plane = (first + j) * in.n;
            Moved<float> const to = moved(poses[j], mean, quat);
            store3(out.means + 3 * plane, stage[warp()], block, to.mean);
            store3(out.velocities + 3 * plane, stage[warp()], block, to.velocity);
            if (mine) store4(out.quats, plane + block.row(), to.quat);
        }
    }
}

// ---- backward

__device__ float warp_sum(float a) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) a += __shfl_xor_sync(~0u, a, step);
    return a;
}

// Lane k holds number k of the sum of the warp's; 0 beyond them.
__device__ float warp_sums(MovingPose<float> const& pose) {
    auto const* values = reinterpret_cast<float const*>(&pose);
    float out = 0;
#pragma unroll
    for (int k = 0; k < NUMBERS; ++k) {
        float const sum = warp_sum(values[k]);
        out = lane() == k ? sum : out;
    }
    return out;
}

// sums: [blocks, Q] of the gradients of the block's poses. Four blocks a multiprocessor: 64 registers.
__global__ void __launch_bounds__(THREADS, 4) move_backward_kernel(Actors in, ActorGrads d, float* sums) {
    __shared__ MovingPose<float> poses[WARPS];
    __shared__ float parts[WARPS][WARPS][NUMBERS];  // by query and warp
    __shared__ float stage[WARPS][3 * WARP];
    Block const block = my_block(in);
    if (block.begin >= block.end) return;
    int64_t const row = block.row();
    bool const mine = block.has(row);
    Vec3<float> d_mean = {};
    Quat<float> d_quat = {};
    for (int64_t first = 0; first < in.queries; first += WARPS) {
        __syncthreads();
        find_pose(in, block.track, first, poses);
        __syncthreads();
        int const n = int(smaller<int64_t>(in.queries - first, WARPS));
        Vec3<float> const mean = mine ? load3(in.means, row) : Vec3<float>{};
        Quat<float> const quat = mine ? normalized(load4(in.quats, row)) : Quat<float>{};
        for (int j = 0; j < n; ++j) {
            int64_t const at = (first + j) * in.n + row;
            Moved<float> slope = {};
            if (mine) slope = {load3(d.d_means, at), load4(d.d_quats, at), load3(d.d_velocities, at)};
            MovedGrad<float> const g = moved_backward(poses[j], mean, quat, slope);
            d_mean = d_mean + g.mean, d_quat = d_quat + g.quat;
            float const sum = warp_sums(g.pose);
            if (lane() < NUMBERS) parts[j][warp()][lane()] = sum;
        }
        __syncthreads();
        for (int i = int(threadIdx.x); i < n * NUMBERS; i += THREADS) {
            float sum = 0;
            for (int w = 0; w < WARPS; ++w) sum += parts[i / NUMBERS][w][i % NUMBERS];
            sums[(blockIdx.x * in.queries + first) * NUMBERS + i] = sum;
        }
    }
    store3(d.means, stage[warp()], block, d_mean);
    if (mine) store4(d.quats, row, normalized_backward(load4(in.quats, row), d_quat));
}

struct KeyGrads {
    int64_t before, after;
    PosePair<float> grads;  // of both
};

// This warp's query of the track, from the sums of the track's blocks.
__device__ KeyGrads key_grads(Actors const& in, ActorGrads const& d, int64_t track, int64_t query, float const* sums) {
    int64_t const begin = in.starts[track], first = first_block(begin, track);
    int64_t const end = first + blocks_with_rows(begin, in.starts[track + 1]);
    MovingPose<float> sum = {};
    for (int64_t b = first + lane(); b < end; b += WARP)
        sum = sum + reinterpret_cast<MovingPose<float> const*>(sums)[b * in.queries + query];
    auto* numbers = reinterpret_cast<float*>(&sum);
#pragma unroll
    for (int k = 0; k < NUMBERS; ++k) numbers[k] = warp_sum(numbers[k]);
    sum.q = sum.q + load4(d.d_rotations, query * in.tracks + track);
    Keys const keys = find_keys(in, track, query);
    return {keys.before, keys.after,
            pose_at_backward(key_pose(in, keys.before), key_pose(in, keys.after), float(keys.fraction),
                             float(keys.rate), sum)};
}

// Thread k < 7 adds number k of a Pose, quaternion and translation, to the gradients of a keyframe.
__device__ void add_number(ActorGrads const& d, int64_t key, Pose<float> const& g) {
    int const k = int(threadIdx.x);
    float* const to = k < 4 ? d.quaternions + 4 * key + k : d.translations + 3 * key + (k - 4);
    *to += reinterpret_cast<float const*>(&g)[k];
}

// One block a track. Queries may share keyframes, so they are added one after another.
__global__ void __launch_bounds__(THREADS) keyframes_backward_kernel(Actors in, ActorGrads d, float const* sums) {
    __shared__ KeyGrads found[WARPS];
    int64_t const track = blockIdx.x, begin = in.key_offsets[track], end = in.key_offsets[track + 1];
    for (int64_t i = 4 * begin + threadIdx.x; i < 4 * end; i += THREADS) d.quaternions[i] = 0;
    for (int64_t i = 3 * begin + threadIdx.x; i < 3 * end; i += THREADS) d.translations[i] = 0;
    for (int64_t first = 0; first < in.queries; first += WARPS) {
        __syncthreads();
        if (first + warp() < in.queries) {
            KeyGrads const g = key_grads(in, d, track, first + warp(), sums);
            if (lane() == 0) found[warp()] = g;
        }
        __syncthreads();
        for (int j = 0; threadIdx.x < 7 && j < WARPS && first + j < in.queries; ++j) {
            add_number(d, found[j].before, found[j].grads.a);
            add_number(d, found[j].after, found[j].grads.b);
        }
    }
}

}  // namespace

void move_actors(Actors const& in, MovedActors const& out, cudaStream_t stream) {
    if (!in.tracks || !in.queries) return;
    move_kernel<<<unsigned(first_block(in.n, in.tracks)), THREADS, 0, stream>>>(in, out);
}

void move_actors_backward(Actors const& in, ActorGrads const& d, Allocator allocator, cudaStream_t stream) {
    if (!in.tracks) return;
    int64_t const blocks = first_block(in.n, in.tracks);
    auto* const sums = allocator.array<float>(blocks * in.queries * NUMBERS);
    move_backward_kernel<<<unsigned(blocks), THREADS, 0, stream>>>(in, d, sums);
    keyframes_backward_kernel<<<unsigned(in.tracks), THREADS, 0, stream>>>(in, d, sums);
}

}  // namespace nurec::cuda
