// SPDX-License-Identifier: Apache-2.0
// Blocks leave a sum of each term, of CHUNK visible blocks of the store, and one block adds these up in double
// precision: in an order that never changes, and with no sum in single precision of more than some numbers and their
// tree.
#include "../common/flat.cuh"
#include "../common/visible.cuh"
#include "../common/warp.cuh"
#include "regularisers.h"

namespace nurec::cuda {
namespace {

constexpr int CHUNK = 4, WARPS = THREADS / 32;  // of a chunk: blocks of the store
constexpr int COUNT = TERMS, SUMS = TERMS + 1;  // the last sum is the number of Gaussians

NUREC_FN int64_t chunks_of(int64_t blocks) {
    return (blocks + CHUNK - 1) / CHUNK;
}

// Adds the visible blocks from number k on. All loads are under way at once.
__device__ void add_chunk(RegularisedGaussians const& in, int64_t k, float (&sums)[SUMS]) {
    int64_t const count = in.blocks.count(in.n);
    int64_t first[CHUNK];
#pragma unroll
    for (int j = 0; j < CHUNK; ++j) first[j] = k + j < count ? in.blocks.first(k + j) : in.n;
#pragma unroll
    for (int j = 0; j < CHUNK; ++j)
        if (first[j] + threadIdx.x < in.n)
            add_opacities(in, first[j] + threadIdx.x, sums[0], sums[2]), sums[COUNT] += 1;
#pragma unroll
    for (int j = 0; j < 3 * CHUNK; ++j) {
        int64_t const at = 3 * first[j / 3] + number_in_block(j % 3);
        if (at < 3 * in.n) sums[1] += in.scales[at];
    }
}

__global__ void __launch_bounds__(THREADS, 8) compute_regularisers_kernel(RegularisedGaussians in, float* rows) {
    __shared__ float of_warps[SUMS][WARPS];
    int64_t const chunks = chunks_of(in.blocks.count(in.n));
    for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        float sums[SUMS] = {};
        add_chunk(in, CHUNK * chunk, sums);
        float const sum = sums_of_block(sums, of_warps);
        if (threadIdx.x < SUMS) rows[SUMS * chunk + threadIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(THREADS)
    average_regularisers_kernel(float const* rows, VisibleBlocks blocks, int64_t n, Terms out) {
    __shared__ double parts[SUMS][THREADS];
    int64_t const chunks = chunks_of(blocks.count(n));
    double sums[SUMS] = {};
    for (int64_t row = threadIdx.x; row < chunks; row += THREADS)
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
    bool const one = blockIdx.x == 0 && threadIdx.x == 0;
    if (one) *d.d_scales = share(d.scale, 3 * in.n);
    if (!in.lidar_opacities) {
        if (one) *d.d_opacities = share(d.opacity, in.n);
        return;
    }
    for_visible_blocks(in.blocks, in.n, [&](int64_t first) {
        if (first + threadIdx.x < in.n) opacities_backward(in, d, first + threadIdx.x);
    });
}

}  // namespace

void regularisers(RegularisedGaussians const& in, Terms const& out, Queue const& queue) {
    int64_t const chunks = chunks_of(blocks_of_store(in.n));
    float* const rows = queue.memory.array<float>(SUMS * chunks);
    auto const blocks = unsigned(smaller<int64_t>(chunks, blocks_for(in.blocks, in.n)));
    if (blocks) compute_regularisers_kernel<<<blocks, THREADS, 0, queue.stream>>>(in, rows);
    average_regularisers_kernel<<<1, THREADS, 0, queue.stream>>>(rows, in.blocks, in.n, out);
}

void regularisers_backward(RegularisedGaussians const& in, TermGrads const& d, Queue const& queue) {
    unsigned const blocks = in.lidar_opacities && in.n ? blocks_for(in.blocks, in.n) : 1;
    compute_regularisers_backward_kernel<<<blocks, THREADS, 0, queue.stream>>>(in, d);
}

}  // namespace nurec::cuda
