// SPDX-License-Identifier: Apache-2.0
// Blocks leave a sum of each term, of CHUNKS times THREADS Gaussians, and one block adds these up in double precision:
// in an order that never changes, and with no sum in single precision of more than some numbers and their tree.
#include "../common/flat.cuh"
#include "../common/warp.cuh"
#include "regularisers.h"

namespace nurec::cuda {
namespace {

constexpr int CHUNKS = 4, WARPS = THREADS / 32;  // chunks: blocks of the store
constexpr int64_t CHUNK_GAUSSIANS = CHUNKS * BLOCK_GAUSSIANS;
constexpr int COUNT = TERMS, SUMS = TERMS + 1;  // the last sum is the number of Gaussians
static_assert(THREADS == BLOCK_GAUSSIANS);

__global__ void __launch_bounds__(THREADS) compute_regularisers_kernel(RegularisedGaussians in, float* rows) {
    __shared__ float of_warps[SUMS][WARPS];
    int64_t const chunk = blockIdx.x * int64_t(CHUNKS), first = chunk * BLOCK_GAUSSIANS + threadIdx.x;
    float sums[SUMS] = {};
#pragma unroll
    for (int k = 0; k < CHUNKS; ++k)
        if (first + k * THREADS < in.n && in.blocks.has_block(chunk + k))
            add_opacities(in, first + k * THREADS, sums[0], sums[2]), sums[COUNT] += 1;
#pragma unroll
    for (int k = 0; k < 3 * CHUNKS; ++k) {
        int64_t const at = 3 * BLOCK_GAUSSIANS * chunk + number_in_block(k);
        if (at < 3 * in.n && in.blocks.has_block(chunk + k / 3)) sums[1] += in.scales[at];
    }
    float const sum = sums_of_block(sums, of_warps);
    if (threadIdx.x < SUMS) rows[SUMS * blockIdx.x + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    average_regularisers_kernel(float const* rows, int blocks, int64_t n, Terms out) {
    __shared__ double parts[SUMS][THREADS];
    double sums[SUMS] = {};
    for (int row = int(threadIdx.x); row < blocks; row += THREADS)
        for (int k = 0; k < SUMS; ++k) sums[k] += double(rows[SUMS * row + k]);
    for (int k = 0; k < SUMS; ++k) parts[k][threadIdx.x] = sums[k];
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            for (auto& part : parts) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x) return;
    double const count = n ? larger(parts[COUNT][0], 1.0) : 0;  // no block counts: 0 instead of NaN
    *out.opacity = float(parts[0][0] / count);
    *out.scale = float(parts[1][0] / (3 * count));
    *out.tie = float(parts[2][0] / count);
}

__global__ void __launch_bounds__(THREADS) compute_regularisers_backward_kernel(RegularisedGaussians in, TermGrads d) {
    int64_t const i = first_row() + threadIdx.x;
    if (i == 0) *d.d_scales = share(d.scale, 3 * in.n);
    if (!in.lidar_opacities) {
        if (i == 0) *d.d_opacities = share(d.opacity, in.n);
    } else if (i < in.n && in.blocks.has(i)) {
        opacities_backward(in, d, i);
    }
}

}  // namespace

void regularisers(RegularisedGaussians const& in, Terms const& out, Queue const& queue) {
    auto const blocks = unsigned((in.n + CHUNK_GAUSSIANS - 1) / CHUNK_GAUSSIANS);
    float* const rows = queue.memory.array<float>(SUMS * int64_t(blocks));
    if (blocks) compute_regularisers_kernel<<<blocks, THREADS, 0, queue.stream>>>(in, rows);
    average_regularisers_kernel<<<1, THREADS, 0, queue.stream>>>(rows, int(blocks), in.n, out);
}

void regularisers_backward(RegularisedGaussians const& in, TermGrads const& d, Queue const& queue) {
    unsigned const blocks = in.lidar_opacities && in.n ? blocks_for(in.n) : 1;
    compute_regularisers_backward_kernel<<<blocks, THREADS, 0, queue.stream>>>(in, d);
}

}  // namespace nurec::cuda
