// SPDX-License-Identifier: Apache-2.0
// A block takes a strip of numbers a row and a few rows, a thread a column of numbers, which is of one channel. Going
// back, blocks leave their sums, and a block for each number of the exposure adds these up in double precision: in an
// order that never changes, and with no sum in single precision of more than a thread's rows and a block's tree.
#include "../common/launch.cuh"
#include "../common/warp.cuh"
#include "expose.h"

namespace nurec::cuda {
namespace {

constexpr int COLUMNS = 128, ROWS = 8;  // of a block: enough blocks for all multiprocessors, few sums to add up
constexpr int WARPS = COLUMNS / 32;

__device__ int own_column() {
    return int(blockIdx.x) * COLUMNS + int(threadIdx.x);
}

// All rows of a thread are on their way from memory before the first is written.
__device__ void load_rows(ExposedImage const& in, float const* from, int column, int first, float (&values)[ROWS]) {
#pragma unroll
    for (int k = 0; k < ROWS; ++k) values[k] = first + k < in.height ? from[in.place(column, first + k)] : 0.f;
}

__global__ void __launch_bounds__(COLUMNS) expose_image_kernel(ExposedImage in, float* out) {
    int const column = own_column(), first = int(blockIdx.y) * ROWS;
    if (column >= in.columns()) return;
    Exposure<float> const by = in.exposure(column % EXPOSED_CHANNELS);
    float values[ROWS];
    load_rows(in, in.image, column, first, values);
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        int const row = first + k;
        if (row < in.height) out[in.place(column, row)] = exposed_by(by, in.radial(column, row), values[k]);
    }
}

// Sums over the rows of a thread.
__device__ Exposure<float> column_backward(ExposedImage const& in, ExposedGrads const& d, int column, int first) {
    Exposure<float> sums = {};
    if (column >= in.columns()) return sums;
    Exposure<float> const by = in.exposure(column % EXPOSED_CHANNELS);
    float values[ROWS], got[ROWS];
    load_rows(in, in.image, column, first, values);
    load_rows(in, d.exposed, column, first, got);
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        int const row = first + k;
        if (row >= in.height) break;
        d.image[in.place(column, row)] = exposed_by_backward(by, in.radial(column, row), values[k], got[k], sums);
    }
    return sums;
}

// `sums` [9, blocks].
__global__ void __launch_bounds__(COLUMNS) expose_image_backward_kernel(ExposedImage in, ExposedGrads d, float* sums) {
    __shared__ float of_warps[EXPOSURE_NUMBERS][WARPS];
    int const column = own_column();
    float numbers[EXPOSURE_NUMBERS] = {};
    add_channel(column_backward(in, d, column, int(blockIdx.y) * ROWS), column % EXPOSED_CHANNELS, numbers);
    float const sum = sums_of_block(numbers, of_warps);
    int64_t const blocks = int64_t(gridDim.x) * gridDim.y, block = int64_t(blockIdx.y) * gridDim.x + blockIdx.x;
    if (threadIdx.x < EXPOSURE_NUMBERS) sums[threadIdx.x * blocks + block] = sum;
}

// A block a number.
__global__ void __launch_bounds__(THREADS)
    sum_exposure_grads_kernel(float const* sums, int64_t blocks, ExposedGrads d) {
    __shared__ double parts[THREADS];
    double sum = 0;
    for (int64_t k = threadIdx.x; k < blocks; k += THREADS) sum += double(sums[blockIdx.x * blocks + k]);
    parts[threadIdx.x] = sum;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *d.number(int(blockIdx.x)) = float(parts[0]);
}

dim3 strips_of(ExposedImage const& in) {
    return dim3(unsigned((in.columns() + COLUMNS - 1) / COLUMNS), unsigned((in.height + ROWS - 1) / ROWS));
}

}  // namespace

void expose(ExposedImage const& in, float* exposed, Queue const& queue) {
    expose_image_kernel<<<strips_of(in), COLUMNS, 0, queue.stream>>>(in, exposed);
}

void expose_backward(ExposedImage const& in, ExposedGrads const& d, Queue const& queue) {
    dim3 const grid = strips_of(in);
    int64_t const blocks = int64_t(grid.x) * grid.y;
    float* const sums = queue.memory.array<float>(EXPOSURE_NUMBERS * blocks);
    expose_image_backward_kernel<<<grid, COLUMNS, 0, queue.stream>>>(in, d, sums);
    sum_exposure_grads_kernel<<<unsigned(d.numbers()), THREADS, 0, queue.stream>>>(sums, blocks, d);
}

}  // namespace nurec::cuda
