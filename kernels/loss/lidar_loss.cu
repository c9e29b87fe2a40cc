// SPDX-License-Identifier: Apache-2.0
// A thread has a ray. Blocks leave their sums, and one block adds these up in double precision: in an order that never
// changes, and with no sum in single precision of more than a block's tree.
#include "../common/flat.cuh"
#include "../common/warp.cuh"
#include "lidar_loss.h"

namespace nurec::cuda {
namespace {

constexpr int WARPS = THREADS / 32;

__global__ void __launch_bounds__(THREADS) compute_lidar_loss_kernel(LidarRays in, float* rows) {
    __shared__ float of_warps[SUMS][WARPS];
    int64_t const i = first_row() + threadIdx.x;
    float sums[SUMS] = {};
    if (i < in.n) add_ray(in, i, sums);
    float const sum = sums_of_block(sums, of_warps);
    if (threadIdx.x < SUMS) rows[SUMS * int64_t(blockIdx.x) + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    average_lidar_loss_kernel(float const* rows, int64_t blocks, LidarTerms out) {
    __shared__ double parts[SUMS][THREADS];
    double sums[SUMS] = {};
    for (int64_t row = threadIdx.x; row < blocks; row += THREADS)
        for (int k = 0; k < SUMS; ++k) sums[k] += double(rows[SUMS * row + k]);
    for (int k = 0; k < SUMS; ++k) parts[k][threadIdx.x] = sums[k];
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            for (auto& part : parts) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x) return;
    for (int k = 0; k < SUMS; ++k) sums[k] = parts[k][0];
    means_of(sums, out);
}

__global__ void __launch_bounds__(THREADS) compute_lidar_loss_backward_kernel(LidarRays in, LidarGrads d) {
    int64_t const i = first_row() + threadIdx.x;
    if (i < in.n) ray_backward(in, d, i);
}

}  // namespace

void lidar_loss(LidarRays const& in, LidarTerms const& out, Queue const& queue) {
    unsigned const blocks = blocks_for(in.n);
    float* const rows = queue.memory.array<float>(SUMS * int64_t(blocks));
    if (blocks) compute_lidar_loss_kernel<<<blocks, THREADS, 0, queue.stream>>>(in, rows);
    average_lidar_loss_kernel<<<1, THREADS, 0, queue.stream>>>(rows, int64_t(blocks), out);
}

void lidar_loss_backward(LidarRays const& in, LidarGrads const& d, Queue const& queue) {
    if (in.n) compute_lidar_loss_backward_kernel<<<blocks_for(in.n), THREADS, 0, queue.stream>>>(in, d);
}

}  // namespace nurec::cuda
