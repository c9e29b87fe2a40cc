// SPDX-License-Identifier: Apache-2.0
// Gradients of poses are summed over a warp by shuffles, over a block in shared memory, and over a track's blocks by a
// second kernel, which takes them on to the keyframes: no atomics, and the same sums in every run.
#include "actor_blocks.cuh"

namespace nurec::cuda {
namespace {

constexpr int BLOCKS_PER_SM = 7;  // blocks on a multiprocessor, 72 registers a thread: 3 % faster than six

using Segments = float[WARPS][WARPS][POSE_FLOATS];  // by query and warp

// Adds the gradients of the warp's rows to a query's pose.
__device__ void add_sums(Segments& parts, int query, MovingPose<float> const& pose) {
    float values[POSE_FLOATS];
#pragma unroll
    for (int k = 0; k < POSE_FLOATS; ++k) values[k] = reinterpret_cast<float const*>(&pose)[k];
    float const sum = sums_by_halves(values, lane());
    int const k = summed_value<POSE_FLOATS>(lane());
    if (k >= 0) parts[query][warp()][k] += sum;
}

// [n, POSE_FLOATS] sums of the block, of n queries.
__device__ void store_sums(Segments const& parts, int n, float* sums) {
    for (int i = int(threadIdx.x); i < n * POSE_FLOATS; i += BLOCK_THREADS) {
        float sum = 0;
        for (int w = 0; w < WARPS; ++w) sum += parts[i / POSE_FLOATS][w][i % POSE_FLOATS];
        sums[i] = sum;
    }
}

__device__ Moved<float> load_slope(Actors const& in, ActorGrads const& d, int64_t query, Block const& block, int row) {
    int64_t const at = query * in.n + block.first + row;
    if (!block.has(row)) return {};
    return {load3(d.d_means, at), load4(d.d_quats, at), load3(d.d_velocities, at)};
}

// Adds to a lane's row; `again`: it has got something already.
__device__ void add_row(ActorGrads const& d, float* stage, int64_t first, WarpRows const& rows, Local sum, bool again) {
    int64_t const i = first + rows.first + lane();
    if (rows.mine()) {
        store4(d.quats, i, again ? load4(d.quats, i) + sum.quat : sum.quat);
        if (again) sum.mean = sum.mean + load3(d.means, i);
    }
    put3(stage, sum.mean);
    __syncwarp();
    copy3<false>(d.means + 3 * (first + rows.first), stage, rows);
    __syncwarp();
}

// sums: [blocks, Q] of the gradients of the block's poses.
__global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM)
    interpolate_actors_backward_kernel(Actors in, ActorGrads d, int64_t size, float* sums) {
    __shared__ MovingPose<float> poses[WARPS];
    __shared__ Segments parts;
    __shared__ float stage[WARPS][3 * WARP];
    fetch_keys(in);
    Block const block = my_block(in, size);
    if (block.begin >= block.end) return;
    int64_t query = 0;
    do {  // once, too, where nothing is asked for: rows get zeros then
        __syncthreads();
        if (query + warp() < in.queries) {
            auto const pose = find_pose(in, block.track, query);
            if (lane() == 0) poses[warp()] = pose;
        }
        for (int i = int(threadIdx.x); i < WARPS * WARPS * POSE_FLOATS; i += BLOCK_THREADS) (&parts[0][0][0])[i] = 0;
        __syncthreads();
        int const n = int(smaller<int64_t>(in.queries - query, WARPS));
        for (int first = block.start(); first < block.end; first += BLOCK_THREADS) {
            int const row = first + int(threadIdx.x);
            WarpRows const rows = warp_rows(block, first);
            if (rows.end <= 0) break;
            Local const own = load_local(in, block, row);
            Local sum = {};
            for (int j = 0; j < n; ++j) {
                Moved<float> const slope = load_slope(in, d, query + j, block, row);
                MovedGrad<float> const g = moved_backward(poses[j], own.mean, own.quat, slope);
                sum = {sum.mean + g.mean, sum.quat + g.quat};
                add_sums(parts, j, g.pose);
            }
            add_row(d, stage[warp()], block.first, rows, sum, query > 0);
        }
        __syncthreads();
        store_sums(parts, n, sums + (blockIdx.x * in.queries + query) * POSE_FLOATS);
        query += WARPS;
    } while (query < in.queries);
}

struct KeyGrads {
    int64_t before, after;
    PosePair<float> grads;  // of both
};

// This warp's query of the track, from the sums of the track's blocks.
__device__ KeyGrads key_grads(Actors const& in, ActorGrads const& d, int64_t track, int64_t query, int64_t size,
                              float const* sums) {
    int64_t const begin = in.starts[track], first = first_block(begin, track, size);
    int64_t const end = first + blocks_with_rows(begin, in.starts[track + 1], size);
    MovingPose<float> sum = {};
    for (int64_t b = first + lane(); b < end; b += WARP)
        sum = sum + reinterpret_cast<MovingPose<float> const*>(sums)[b * in.queries + query];
    auto* numbers = reinterpret_cast<float*>(&sum);
#pragma unroll
    for (int k = 0; k < POSE_FLOATS; ++k) numbers[k] = warp_sum(numbers[k]);
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
__global__ void __launch_bounds__(BLOCK_THREADS)
    interpolate_keyframes_backward_kernel(Actors in, ActorGrads d, int64_t size, float const* sums) {
    __shared__ KeyGrads found[WARPS];
    int64_t const track = blockIdx.x, begin = in.key_offsets[track], end = in.key_offsets[track + 1];
    if (begin == end) return;
    for (int64_t i = 4 * begin + threadIdx.x; i < 4 * end; i += BLOCK_THREADS) d.quaternions[i] = 0;
    for (int64_t i = 3 * begin + threadIdx.x; i < 3 * end; i += BLOCK_THREADS) d.translations[i] = 0;
    for (int64_t first = 0; first < in.queries; first += WARPS) {
        __syncthreads();
        if (first + warp() < in.queries) {
            KeyGrads const g = key_grads(in, d, track, first + warp(), size, sums);
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

void move_actors_backward(Actors const& in, ActorGrads const& d, Queue const& queue) {
    if (!in.tracks) return;
    int64_t const size = block_size(in, BLOCKS_PER_SM), blocks = first_block(in.n, in.tracks, size);
    auto* const sums = queue.memory.array<float>(blocks * in.queries * POSE_FLOATS);
    interpolate_actors_backward_kernel<<<unsigned(blocks), BLOCK_THREADS, 0, queue.stream>>>(in, d, size, sums);
    interpolate_keyframes_backward_kernel<<<unsigned(in.tracks), BLOCK_THREADS, 0, queue.stream>>>(in, d, size, sums);
}

}  // namespace nurec::cuda
