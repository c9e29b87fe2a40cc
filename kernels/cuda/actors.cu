// SPDX-License-Identifier: Apache-2.0
// Gaussians moved with their tracks to all query times: one that is read once, and nothing but the results is written.
#include "actors.cuh"

namespace nurec::cuda {
namespace {

__global__ void __launch_bounds__(THREADS, 4) move_kernel(Actors in, MovedActors out, int64_t size) {
    __shared__ MovingPose<float> poses[WARPS];
    __shared__ float stage[WARPS][3 * WARP];
    Block const block = my_block(in, size);
    bool const leads = blockIdx.x == first_block(in.starts[block.track], block.track, size);
    if (block.begin >= block.end && !leads) return;
    for (int64_t query = 0; query < in.queries; query += WARPS) {
        Local next = load_local(in, block, block.start() + int(threadIdx.x));
        __syncthreads();
        find_pose(in, block.track, query, poses);
        __syncthreads();
        int const n = int(smaller<int64_t>(in.queries - query, WARPS));
        if (leads && int(threadIdx.x) < n)
            store4(out.rotations, (query + threadIdx.x) * in.tracks + block.track, poses[threadIdx.x].q);
        for (int first = block.start(); first < block.end; first += THREADS) {
            int const row = first + int(threadIdx.x);
            Local const own = {next.mean, normalized(next.quat)};
            next = load_local(in, block, row + THREADS);  // on its way while this one is written
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

}  // namespace

void move_actors(Actors const& in, MovedActors const& out, cudaStream_t stream) {
    if (!in.tracks || !in.queries) return;
    int64_t const size = block_size(in);
    move_kernel<<<unsigned(first_block(in.n, in.tracks, size)), THREADS, 0, stream>>>(in, out, size);
}

}  // namespace nurec::cuda
