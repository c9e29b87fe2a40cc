// SPDX-License-Identifier: Apache-2.0
// Gaussians moved with their tracks to all query times: one that is read once, and nothing but the results is written.
#include "actor_blocks.cuh"

namespace nurec::cuda {
namespace {

constexpr int BLOCKS_PER_SM = 7;  // blocks on a multiprocessor: eight, 64 registers a thread, spill on sm_80

struct Stage {
    float means[3 * WARP], velocities[3 * WARP];
};

// A warp's rows at n query times, `row` the first of them at the first. ALL: the warp's rows are all the block's.
template <bool ALL>
__device__ void store_moved(MovedActors const& out, int64_t n_rows, int64_t row, WarpRows const& rows, Local const& own,
                            PoseMatrices<float> const* poses, int n, Stage& stage) {
    float *means = out.means + 3 * row, *velocities = out.velocities + 3 * row, *quats = out.quats + 4 * row;
    for (int j = 0; j < n; ++j) {
        Moved<float> const to = moved(poses[j], own.mean, own.quat);
        put3(stage.means, to.mean), put3(stage.velocities, to.velocity);
        __syncwarp();
        copy3<ALL>(means, stage.means, rows), copy3<ALL>(velocities, stage.velocities, rows);
        if (ALL || rows.mine()) store4(quats, lane(), to.quat);
        __syncwarp();
        means += 3 * n_rows, velocities += 3 * n_rows, quats += 4 * n_rows;
    }
}

__global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM)
    interpolate_actors_kernel(Actors in, MovedActors out, int64_t size) {
    __shared__ PoseMatrices<float> poses[WARPS];
    __shared__ Stage stages[WARPS];
    fetch_keys(in);
    Block const block = my_block(in, size);
    if (block.begin >= block.end && !block.leads) return;
    for (int64_t query = 0; query < in.queries; query += WARPS) {
        __syncthreads();
        if (query + warp() < in.queries) {
            auto const pose = matrices_of(find_pose(in, block.track, query));
            if (lane() == 0) poses[warp()] = pose;
        }
        Local next = load_local(in, block, block.start() + int(threadIdx.x));
        __syncthreads();
        int const n = int(smaller<int64_t>(in.queries - query, WARPS));
        if (block.leads && int(threadIdx.x) < n)
            store4(out.rotations, (query + threadIdx.x) * in.tracks + block.track, poses[threadIdx.x].q);
        for (int first = block.start(); first < block.end; first += BLOCK_THREADS) {
            Local const own = next;
            next = load_local(in, block,
                              first + int(threadIdx.x) + BLOCK_THREADS);  // on its way while this one is written
            WarpRows const rows = warp_rows(block, first);
            int64_t const row = query * in.n + block.first + rows.first;
            if (rows.all())
                store_moved<true>(out, in.n, row, rows, own, poses, n, stages[warp()]);
            else if (rows.end > 0)
                store_moved<false>(out, in.n, row, rows, own, poses, n, stages[warp()]);
        }
    }
}

}  // namespace

void move_actors(Actors const& in, MovedActors const& out, Queue const& queue) {
    if (!in.tracks || !in.queries) return;
    int64_t const size = block_size(in, BLOCKS_PER_SM);
    interpolate_actors_kernel<<<unsigned(first_block(in.n, in.tracks, size)), BLOCK_THREADS, 0, queue.stream>>>(in, out,
                                                                                                                size);
}

}  // namespace nurec::cuda
