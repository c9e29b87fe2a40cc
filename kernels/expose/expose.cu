// SPDX-License-Identifier: Apache-2.0
// A block takes a strip of columns and a few rows, a thread one column of it. Going back, blocks leave their sums, and
// a block for each number of the exposure adds these up in double precision: in an order that never changes, and with
// no sum in single precision of more than a thread's rows and a block's tree.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "../common/warp.cuh"
#include "params.h"

namespace nurec::cuda {
namespace {

constexpr int COLUMNS = 128, ROWS = 4;  // of a block: enough blocks for all multiprocessors, few sums to add up
constexpr int WARPS = COLUMNS / 32;

__global__ void __launch_bounds__(COLUMNS) expose_kernel(ExposedImage in, float* out) {
    int const column = int(blockIdx.x) * COLUMNS + int(threadIdx.x), first = int(blockIdx.y) * ROWS;
    if (column >= in.width) return;
    Exposure<float> const by = in.exposure();
#pragma unroll
    for (int row = first; row < first + ROWS; ++row) {
        if (row >= in.height) return;
        int64_t const i = in.pixel(column, row);
        store3(out, i, exposed_by(by, in.radial(column, row), load3(in.image, i)));
    }
}

__device__ Exposure<float> column_backward(ExposedImage const& in, ExposedGrads const& d, int column, int first) {
    Exposure<float> const by = in.exposure();
    Exposure<float> sums = {};
    if (column >= in.width) return sums;
#pragma unroll
    for (int row = first; row < first + ROWS; ++row) {
        if (row >= in.height) return sums;
        int64_t const i = in.pixel(column, row);
        store3(d.image, i,
               exposed_by_backward(by, in.radial(column, row), load3(in.image, i), load3(d.exposed, i), sums));
    }
    return sums;
}

// `rows` [9, blocks].
__global__ void __launch_bounds__(COLUMNS) expose_backward_kernel(ExposedImage in, ExposedGrads d, float* rows) {
    __shared__ float of_warps[EXPOSURE_NUMBERS][WARPS];
    int const t = int(threadIdx.x), column = int(blockIdx.x) * COLUMNS + t;
    Exposure<float> const own = column_backward(in, d, column, int(blockIdx.y) * ROWS);
    Vec3<float> const a = own.log_gain, b = own.offset, c = own.vignetting;
    float numbers[EXPOSURE_NUMBERS] = {a.x, a.y, a.z, b.x, b.y, b.z, c.x, c.y, c.z};
    float const sum = sums_by_halves(numbers, t % 32);
    int const number = summed_value<EXPOSURE_NUMBERS>(t % 32);
    if (number >= 0) of_warps[number][t / 32] = sum;
    __syncthreads();
    if (t >= EXPOSURE_NUMBERS) return;
    float total = 0;
    for (float const one : of_warps[t]) total += one;
    int64_t const blocks = int64_t(gridDim.x) * gridDim.y;
    rows[t * blocks + int64_t(blockIdx.y) * gridDim.x + blockIdx.x] = total;
}

// A block a number.
__global__ void __launch_bounds__(THREADS) expose_totals_kernel(float const* rows, int64_t blocks, ExposedGrads d) {
    __shared__ double parts[THREADS];
    double sum = 0;
    for (int64_t k = threadIdx.x; k < blocks; k += THREADS) sum += double(rows[blockIdx.x * blocks + k]);
    parts[threadIdx.x] = sum;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    }
    if (threadIdx.x == 0) d.numbers[blockIdx.x / 3][blockIdx.x % 3] = float(parts[0]);
}

dim3 strips_of(ExposedImage const& in) {
    return dim3(unsigned((in.width + COLUMNS - 1) / COLUMNS), unsigned((in.height + ROWS - 1) / ROWS));
}

}  // namespace

void expose(ExposedImage const& in, float* exposed, Queue const& queue) {
    expose_kernel<<<strips_of(in), COLUMNS, 0, queue.stream>>>(in, exposed);
}

void expose_backward(ExposedImage const& in, ExposedGrads const& d, Queue const& queue) {
    dim3 const grid = strips_of(in);
    int64_t const blocks = int64_t(grid.x) * grid.y;
    float* const rows = queue.memory.array<float>(EXPOSURE_NUMBERS * blocks);
    expose_backward_kernel<<<grid, COLUMNS, 0, queue.stream>>>(in, d, rows);
    unsigned const numbers = in.vignetting ? EXPOSURE_NUMBERS : EXPOSURE_NUMBERS - 3;
    expose_totals_kernel<<<numbers, THREADS, 0, queue.stream>>>(rows, blocks, d);
}

}  // namespace nurec::cuda
