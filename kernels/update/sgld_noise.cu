// SPDX-License-Identifier: Apache-2.0
// A block takes THREADS Gaussians: their numbers come as they lie in memory, and go to shared memory to be turned, each
// Gaussian's three by one thread, which draws its random numbers, and back.
#include "../common/flat.cuh"
#include "../common/triples.cuh"
#include "../common/visible.cuh"
#include "sgld_noise.h"

namespace nurec::cuda {
namespace {

// Moves the Gaussians from `first` on. All threads of a block call it.
__device__ void add_to_block(ExploringGaussians const& in, int64_t first, float (&rows)[3 * THREADS]) {
    int64_t const i = first + threadIdx.x;
    bool const there = i < in.n;
    float means[3], log_scales[3];
    Quat<float> const q = there ? load4(in.quats, i) : Quat<float>{1, 0, 0, 0};
    float const amount = there ? wandering_of(in, i) : 0.f;
    load_flat(in.log_scales, first, in.n, log_scales);
    load_flat(in.means, first, in.n, means);
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        float const kept = at_least(log_scales[k], in.least);
        int64_t const at = 3 * first + number_in_block(k);
        if (kept != log_scales[k] && at < 3 * in.n) in.log_scales[at] = kept;
        rows[number_in_block(k)] = exp(kept);
    }
    Vec3<float> const eta = eta_of(in, i);
    __syncthreads();
    float* const mine = rows + 3 * threadIdx.x;
    Vec3<float> const moved = turned(q, amount * Vec3<float>{mine[0] * eta.x, mine[1] * eta.y, mine[2] * eta.z});
    mine[0] = moved.x, mine[1] = moved.y, mine[2] = moved.z;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 3; ++k) means[k] += rows[number_in_block(k)];
    store_flat(in.means, first, in.n, means);
}

__global__ void __launch_bounds__(THREADS) add_sgld_noise_kernel(ExploringGaussians in) {
    __shared__ float rows[3 * THREADS];
    for_visible_blocks(in.blocks, in.n, [&](int64_t first) { add_to_block(in, first, rows); });
}

}  // namespace

void sgld_noise(ExploringGaussians const& in, Queue const& queue) {
    if (in.n) add_sgld_noise_kernel<<<blocks_for(in.blocks, in.n), THREADS, 0, queue.stream>>>(in);
}

}  // namespace nurec::cuda
