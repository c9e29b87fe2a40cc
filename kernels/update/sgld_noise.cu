// SPDX-License-Identifier: Apache-2.0
// A block takes THREADS Gaussians: their numbers come as they lie in memory, and go to shared memory to be turned, each
// Gaussian's three by one thread, which draws its random numbers, and back.
#include "../common/flat.cuh"
#include "../common/triples.cuh"
#include "sgld_noise.h"

namespace nurec::cuda {
namespace {

static_assert(THREADS == BLOCK_GAUSSIANS);

__global__ void __launch_bounds__(THREADS) add_sgld_noise_kernel(ExploringGaussians in) {
    __shared__ float rows[3 * THREADS];
    if (!in.blocks.has_block(blockIdx.x)) return;
    int64_t const i = first_row() + threadIdx.x;
    bool const there = i < in.n;
    float means[3], log_scales[3];
    Quat<float> const q = there ? load4(in.quats, i) : Quat<float>{1, 0, 0, 0};
    float const amount = there ? wandering_of(in, i) : 0.f;
    load_flat(in.log_scales, in.n, log_scales);
    load_flat(in.means, in.n, means);
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        float const kept = at_least(log_scales[k], in.least);
        int64_t const at = 3 * first_row() + number_in_block(k);
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
    store_flat(in.means, in.n, means);
}

}  // namespace

void sgld_noise(ExploringGaussians const& in, Queue const& queue) {
    if (in.n) add_sgld_noise_kernel<<<blocks_for(in.n), THREADS, 0, queue.stream>>>(in);
}

}  // namespace nurec::cuda
