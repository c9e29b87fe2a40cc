// SPDX-License-Identifier: Apache-2.0
// Two kernels: each block goes through the Gaussians with a stride and writes six sums; one block adds these rows in a
// fixed order. A Gaussian whose gradient is zero, as most unseen ones have, costs the read of that gradient alone.
#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "../common/warp.cuh"
#include "pose_gradient.h"

namespace nurec::cuda {
namespace {

constexpr int WARPS = THREADS / 32, BLOCKS_PER_SM = 4;

__device__ void add(PlacedSet const& g, Vec3<float> centre, float (&sums)[POSE_DELTA_FLOATS]) {
    for (int64_t i = blockIdx.x * int64_t(THREADS) + threadIdx.x; i < g.n; i += gridDim.x * int64_t(THREADS)) {
        Vec3<float> const d = load3(g.d_means, i);
        Quat<float> const dq = load_quat(g.d_quats, i);
        if (d.x == 0 && d.y == 0 && d.z == 0 && dq.w == 0 && dq.x == 0 && dq.y == 0 && dq.z == 0) continue;
        Correction<float> const c = pose_vjp(load3(g.means, i) - centre, load_quat(g.quats, i), d, dq);
        sums[0] += c.turn.x, sums[1] += c.turn.y, sums[2] += c.turn.z;
        sums[3] += c.shift.x, sums[4] += c.shift.y, sums[5] += c.shift.z;
    }
}

// Adds up the block's sums into `row` of six.
__device__ void add_up(float (&sums)[POSE_DELTA_FLOATS], float* row) {
    __shared__ float of_warps[POSE_DELTA_FLOATS][WARPS];
    float const sum = sums_of_block(sums, of_warps);
    if (threadIdx.x < POSE_DELTA_FLOATS) row[threadIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS) compute_pose_grad_kernel(PlacedGaussians in, float* rows) {
    float sums[POSE_DELTA_FLOATS] = {};
    for (PlacedSet const& g : in.sets) add(g, *in.centre, sums);
    add_up(sums, rows + POSE_DELTA_FLOATS * blockIdx.x);
}

__global__ void __launch_bounds__(THREADS) sum_pose_grad_rows_kernel(float const* rows, int n, float* gradient) {
    float sums[POSE_DELTA_FLOATS] = {};
    for (int row = int(threadIdx.x); row < n; row += THREADS)
        for (int k = 0; k < POSE_DELTA_FLOATS; ++k) sums[k] += rows[POSE_DELTA_FLOATS * row + k];
    add_up(sums, gradient);
}

}  // namespace

void pose_gradient(PlacedGaussians const& in, float* gradient, Queue const& queue) {
    unsigned const most = unsigned(BLOCKS_PER_SM * multiprocessors()), n = blocks_for(in.sets[0].n + in.sets[1].n);
    unsigned const blocks = n < 1 ? 1 : n < most ? n : most;
    float* const rows = queue.memory.array<float>(POSE_DELTA_FLOATS * int64_t(blocks));
    compute_pose_grad_kernel<<<blocks, THREADS, 0, queue.stream>>>(in, rows);
    sum_pose_grad_rows_kernel<<<1, THREADS, 0, queue.stream>>>(rows, int(blocks), gradient);
}

}  // namespace nurec::cuda
