// SPDX-License-Identifier: Apache-2.0
// A block moves the Gaussians of one track, or up to `size` of them, to all query times, one a thread at a time. Its
// warps find the poses first, one time a warp, into shared memory, so that a Gaussian is read once and nothing but the
// results is written. Finding them takes a chain of loads, each waiting for the one before: where there are many
// Gaussians, a block has several for each thread, so that it is gone through less often.
//
// Backwards, what poses get is added up over a warp by shuffles, over a block in shared memory, and over a track's
// blocks by a second kernel, which takes it on to the keyframes: no atomics, and the same sums in every run.
#include "actors.h"

#include "../math/actors.cuh"
#include "triples.cuh"
#include "warp.cuh"

namespace nurec::cuda {
namespace {

constexpr int WARP = 32, WARPS = THREADS / WARP;  // as many query times at once as there are warps
constexpr int NUMBERS = sizeof(MovingPose<float>) / sizeof(float);
constexpr int64_t BLOCKS = 512;  // that a large GPU has room for at once, four on each of 128 multiprocessors
constexpr int64_t MOST = 16;     // rows a thread
static_assert(NUMBERS == 13 && sizeof(PosePair<float>) == 14 * sizeof(float));

// As few rows a thread as make no more than BLOCKS of them, of which every track has one that is not full.
int64_t block_size(Actors const& in) {
    int64_t const full = THREADS * larger(BLOCKS - in.tracks, BLOCKS / 4);
    return THREADS * larger<int64_t>(1, smaller(MOST, (in.n + full - 1) / full));
}

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

// How many of begin to end are `before`: the first ones. Found by a whole warp, which looks at 32 of them at a time.
template <class Before>
__device__ int64_t count_before(int64_t begin, int64_t end, Before before) {
    int64_t const first = begin;
    while (begin < end) {
        int64_t const step = (end - begin + WARP - 1) / WARP, last = begin + (lane() + 1) * step - 1;
        begin += step * __popc(__ballot_sync(ALL_LANES, last < end && before(last)));
        end = smaller(end, begin + step - 1);
    }
    return begin - first;
}

// The rows of one track that this block moves, begin to end, counted from row `first`.
struct Block {
    int64_t track, first;
    int begin, end;

    __device__ bool has(int i) const { return i >= begin && i < end; }
};

__device__ Block my_block(Actors const& in, int64_t size) {
    auto const before = [&](int64_t k) { return first_block(in.starts[k], k, size) <= blockIdx.x; };
    int64_t const k = count_before(0, in.tracks, before) - 1, first = (blockIdx.x - k) * size;
    return {k, first, int(larger<int64_t>(in.starts[k] - first, 0)), int(smaller(in.starts[k + 1] - first, size))};
}

// Three numbers a lane, to rows of 12 bytes, row `first` of the block by thread 0: written as they are, every
// instruction would touch all sectors of the warp's 384 bytes. They go through shared memory and out in runs of 128.
__device__ void store3(float* to, float* stage, Block const& block, int first, Vec3<float> v) {
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

// ---- poses, by whole warps

__device__ Keys find_keys(Actors const& in, int64_t track, int64_t query) {
    int64_t const begin = in.key_offsets[track], end = in.key_offsets[track + 1];
    double const time = in.times[query];
    int64_t const passed = count_before(begin, end, [&](int64_t m) { return in.key_times[m] <= time; });
    return keys_around(in.key_times, begin, end, passed, time);
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

struct Row {
    Vec3<float> mean;
    Quat<float> quat;  // of any length
};

__device__ Row load_row(Actors const& in, Block const& block, int i) {
    return block.has(i) ? Row{load3(in.means, block.first + i), load4(in.quats, block.first + i)} : Row{};
}

__global__ void __launch_bounds__(THREADS, 4) move_kernel(Actors in, MovedActors out, int64_t size) {
    __shared__ MovingPose<float> poses[WARPS];
    __shared__ float stage[WARPS][3 * WARP];
    Block const block = my_block(in, size);
    bool const leads = blockIdx.x == first_block(in.starts[block.track], block.track, size);
    if (block.begin >= block.end && !leads) return;
    for (int64_t query = 0; query < in.queries; query += WARPS) {
        Row next = load_row(in, block, int(threadIdx.x));
        __syncthreads();
        find_pose(in, block.track, query, poses);
        __syncthreads();
        int const n = int(smaller<int64_t>(in.queries - query, WARPS));
        if (leads && int(threadIdx.x) < n)
            store4(out.rotations, (query + threadIdx.x) * in.tracks + block.track, poses[threadIdx.x].q);
        for (int first = 0; first < block.end; first += THREADS) {
            int const row = first + int(threadIdx.x);
            Row const own = {next.mean, normalized(next.quat)};
            next = load_row(in, block, row + THREADS);  // on its way while this one is written
            for (int j = 0; j < n; ++j) {
                int64_t const plane = (query + j) * in.n;
                Moved<float> const to = moved(poses[j], own.mean, own.quat);
                store3(out.means + 3 * plane, stage[warp()], block, first, to.mean);
                store3(out.velocities + 3 * plane, stage[warp()], block, first, to.velocity);
                if (block.has(row)) store4(out.quats, plane + block.first + row, to.quat);
            }
        }
    }
}

// ---- backward

using Parts = float[WARPS][WARPS][NUMBERS];  // by query and warp

// Adds what a query's pose gets from the warp's rows.
__device__ void add_sums(Parts& parts, int query, MovingPose<float> const& pose) {
    float values[NUMBERS];
#pragma unroll
    for (int k = 0; k < NUMBERS; ++k) values[k] = reinterpret_cast<float const*>(&pose)[k];
    float const sum = sums_by_halves(values, lane());
    int const k = summed_value<NUMBERS>(lane());
    if (k >= 0) parts[query][warp()][k] += sum;
}

// [n, NUMBERS] sums of the block, of n queries.
__device__ void store_sums(Parts const& parts, int n, float* sums) {
    for (int i = int(threadIdx.x); i < n * NUMBERS; i += THREADS) {
        float sum = 0;
        for (int w = 0; w < WARPS; ++w) sum += parts[i / NUMBERS][w][i % NUMBERS];
        sums[i] = sum;
    }
}

__device__ Moved<float> load_slope(Actors const& in, ActorGrads const& d, int64_t query, Block const& block, int row) {
    int64_t const at = query * in.n + block.first + row;
    if (!block.has(row)) return {};
    return {load3(d.d_means, at), load4(d.d_quats, at), load3(d.d_velocities, at)};
}

// What row first + threadIdx.x gets, d_quat as a unit quaternion; `again`: it has got something already.
__device__ void add_row(Actors const& in, ActorGrads const& d, float* stage, Block const& block, int first, Row sum,
                        bool again) {
    int const row = first + int(threadIdx.x);
    int64_t const i = block.first + row;
    if (block.has(row)) {
        Quat<float> const got = normalized_backward(load4(in.quats, i), sum.quat);
        store4(d.quats, i, again ? load4(d.quats, i) + got : got);
        if (again) sum.mean = sum.mean + load3(d.means, i);
    }
    store3(d.means, stage, block, first, sum.mean);
}

// sums: [blocks, Q] of the gradients of the block's poses. Three blocks a multiprocessor: with four, 64 registers
// a thread, some of them would spill.
__global__ void __launch_bounds__(THREADS, 3) move_backward_kernel(Actors in, ActorGrads d, int64_t size, float* sums) {
    __shared__ MovingPose<float> poses[WARPS];
    __shared__ Parts parts;
    __shared__ float stage[WARPS][3 * WARP];
    Block const block = my_block(in, size);
    if (block.begin >= block.end) return;
    int64_t query = 0;
    do {  // once, too, where nothing is asked for: rows get zeros then
        __syncthreads();
        find_pose(in, block.track, query, poses);
        for (int i = int(threadIdx.x); i < WARPS * WARPS * NUMBERS; i += THREADS) (&parts[0][0][0])[i] = 0;
        __syncthreads();
        int const n = int(smaller<int64_t>(in.queries - query, WARPS));
        for (int first = 0; first < block.end; first += THREADS) {
            int const row = first + int(threadIdx.x);
            Row own = load_row(in, block, row);
            own.quat = normalized(own.quat);
            Row sum = {};
            for (int j = 0; j < n; ++j) {
                Moved<float> const slope = load_slope(in, d, query + j, block, row);
                MovedGrad<float> const g = moved_backward(poses[j], own.mean, own.quat, slope);
                sum = {sum.mean + g.mean, sum.quat + g.quat};
                add_sums(parts, j, g.pose);
            }
            add_row(in, d, stage[warp()], block, first, sum, query > 0);
        }
        __syncthreads();
        store_sums(parts, n, sums + (blockIdx.x * in.queries + query) * NUMBERS);
        query += WARPS;
    } while (query < in.queries);
}

__device__ float warp_sum(float a) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) a += __shfl_xor_sync(ALL_LANES, a, step);
    return a;
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
__global__ void __launch_bounds__(THREADS)
    keyframes_backward_kernel(Actors in, ActorGrads d, int64_t size, float const* sums) {
    __shared__ KeyGrads found[WARPS];
    int64_t const track = blockIdx.x, begin = in.key_offsets[track], end = in.key_offsets[track + 1];
    for (int64_t i = 4 * begin + threadIdx.x; i < 4 * end; i += THREADS) d.quaternions[i] = 0;
    for (int64_t i = 3 * begin + threadIdx.x; i < 3 * end; i += THREADS) d.translations[i] = 0;
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

void move_actors(Actors const& in, MovedActors const& out, cudaStream_t stream) {
    if (!in.tracks || !in.queries) return;
    int64_t const size = block_size(in);
    move_kernel<<<unsigned(first_block(in.n, in.tracks, size)), THREADS, 0, stream>>>(in, out, size);
}

void move_actors_backward(Actors const& in, ActorGrads const& d, Allocator allocator, cudaStream_t stream) {
    if (!in.tracks) return;
    int64_t const size = block_size(in), blocks = first_block(in.n, in.tracks, size);
    auto* const sums = allocator.array<float>(blocks * in.queries * NUMBERS);
    move_backward_kernel<<<unsigned(blocks), THREADS, 0, stream>>>(in, d, size, sums);
    keyframes_backward_kernel<<<unsigned(in.tracks), THREADS, 0, stream>>>(in, d, size, sums);
}

}  // namespace nurec::cuda
