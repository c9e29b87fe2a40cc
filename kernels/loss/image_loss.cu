// SPDX-License-Identifier: Apache-2.0
// One pass over the image each way. A block walks down a strip of COLUMNS numbers a row, a thread a column of numbers:
// a row of the strip comes to shared memory, each thread blurs it along the row, and hands the result to ten sums that
// are under way for the ten rows with windows that are not full yet. So nothing that was blurred leaves the registers,
// and the next row is on its way from memory meanwhile.
//
// Ideas: all moments at once and derivatives kept for the backward pass are those of fused-ssim (Rahul Goel,
// https://github.com/rahul-goel/fused-ssim), which Taming 3DGS (Mallick et al. 2024) and Faster-GS use; sums under way
// instead of a second array in shared memory are a FIR filter in transposed form.
#include "../common/launch.cuh"
#include "../common/warp.cuh"
#include "image_loss.h"

namespace nurec::cuda {
namespace {

constexpr int COLUMNS = 128;      // threads of a block
constexpr int BLOCKS_PER_SM = 5;  // blocks a multiprocessor; left alone, ptxas aims at seven on sm_120 and spills
constexpr int WARPS = COLUMNS / 32;
constexpr int STRIP = COLUMNS + 2 * REACH;
constexpr int ROWS = 24;  // of a block: 10 more are blurred than come out
static_assert(STRIP <= 2 * COLUMNS && REACH <= COLUMNS, "a thread brings two numbers of a row");

// N maps of one strip, row by row, from memory by way of registers to shared memory: a thread brings two numbers of
// each.
template <int N>
struct Strip {
    float const* at[N];  // the first of these, in the next row
    int height, row;
    bool inside[2];  // whether the row has such numbers
    float coming[N][2];

    __device__ Strip(float const* const (&maps)[N], ImagePair const& in, int y)
        : height(int(in.height)), row(int(in.row)) {
        int const k = int(threadIdx.x), j = int(blockIdx.x) * COLUMNS - REACH + k;
        inside[0] = j >= 0 && j < row, inside[1] = k + COLUMNS < STRIP && j + COLUMNS < row;
#pragma unroll
        for (int map = 0; map < N; ++map) at[map] = maps[map] + int64_t(y) * row + j;
    }

    __device__ void fetch(int y) {
        bool const there = y >= 0 && y < height;
#pragma unroll
        for (int map = 0; map < N; ++map) {
            coming[map][0] = there && inside[0] ? at[map][0] : 0.f;
            coming[map][1] = there && inside[1] ? at[map][COLUMNS] : 0.f;
            at[map] += row;
        }
    }

    __device__ void put(float (&here)[N][STRIP]) const {
#pragma unroll
        for (int map = 0; map < N; ++map) {
            here[map][threadIdx.x] = coming[map][0];
            if (threadIdx.x + COLUMNS < STRIP) here[map][threadIdx.x + COLUMNS] = coming[map][1];
        }
    }
};

// Sums over the rows of a window, for one column of N maps.
template <int N>
struct Column {
    float under_way[N][SSIM_TAPS - 1];

    __device__ void clear() {
#pragma unroll
        for (int map = 0; map < N; ++map)
#pragma unroll
            for (int k = 0; k < SSIM_TAPS - 1; ++k) under_way[map][k] = 0;
    }

    // Takes a row, and gives the sum of the window that it completes; `row` and `full` may be one.
    __device__ void push(float const (&row)[N], float (&full)[N]) {
#pragma unroll
        for (int map = 0; map < N; ++map) {
            float const value = row[map];
            float (&sums)[SSIM_TAPS - 1] = under_way[map];
            full[map] = sums[0] + ssim_window<float>(SSIM_TAPS - 1) * value;
#pragma unroll
            for (int k = 0; k + 1 < SSIM_TAPS - 1; ++k)
                sums[k] = sums[k + 1] + ssim_window<float>(SSIM_TAPS - 2 - k) * value;
            sums[SSIM_TAPS - 2] = ssim_window<float>(0) * value;
        }
    }
};

// Turns two images a and b, as they come, into a + b and a - b.
__device__ inline void sums_and_differences(float (&coming)[2][2]) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
        float const a = coming[0][part], b = coming[1][part];
        coming[0][part] = a + b, coming[1][part] = a - b;
    }
}

// Numbers with the same weight are added before they are weighted.
__device__ inline void moments_along_row(float const (&here)[2][STRIP], float (&sum)[MOMENTS]) {
    float const middle = ssim_window<float>(SSIM_HALF);
#pragma unroll
    for (int map = 0; map < 2; ++map) {
        float const *const a = here[map] + threadIdx.x, x = a[REACH];
        float means = middle * x, squares = middle * (x * x);
#pragma unroll
        for (int k = 0; k < SSIM_HALF; ++k) {
            float const w = ssim_window<float>(k), p = a[CHANNELS * k], q = a[2 * REACH - CHANNELS * k];
            means += w * (p + q), squares += w * (p * p + q * q);
        }
        sum[map] = means, sum[2 + map] = squares;
    }
}

__device__ inline float along_row(float const (&here)[STRIP]) {
    float const* const a = here + threadIdx.x;
    float sum = ssim_window<float>(SSIM_HALF) * a[REACH];
#pragma unroll
    for (int k = 0; k < SSIM_HALF; ++k) sum += ssim_window<float>(k) * (a[CHANNELS * k] + a[2 * REACH - CHANNELS * k]);
    return sum;
}

// Sum over the threads of a block, for thread 0.
__device__ float block_sum(float value, float (&of_warps)[WARPS]) {
    float const sum = warp_sum(value);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    float all = of_warps[0];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) all += of_warps[w];
    return all;
}

// `sums` [2, blocks]: of |a - b| and of SSIM, over the numbers that each block answers for.
__global__ void __launch_bounds__(COLUMNS, BLOCKS_PER_SM)
    compute_image_loss_kernel(ImagePair in, float* slopes, float* sums) {
    __shared__ float rows[2][2][STRIP], of_warps[2][WARPS];  // rows in two turns: one may still be read
    int const j = blockIdx.x * COLUMNS + threadIdx.x, row = int(in.row);
    int const begin = blockIdx.y * ROWS, end = min(begin + ROWS, int(in.height));
    int64_t const plane = in.height * in.row;
    Strip<2> strip({in.rendered, in.target}, in, begin - SSIM_HALF);
    Column<MOMENTS> column;
    column.clear();
    float apart = 0, similar = 0, *out = slopes + int64_t(begin) * row + j;
    strip.fetch(begin - SSIM_HALF);
    for (int y = begin - SSIM_HALF; y < end + SSIM_HALF; ++y) {
        auto& here = rows[y & 1];
        sums_and_differences(strip.coming);
        strip.put(here);
        __syncthreads();
        strip.fetch(y + 1);
        if (y >= begin && y < end) apart += fabsf(here[1][threadIdx.x + REACH]);
        float m[MOMENTS];
        moments_along_row(here, m);
        column.push(m, m);
        if (y < begin + SSIM_HALF || j >= row) continue;
        Ssim<float> const found = ssim_of<float>({m[0], m[1], m[2], m[3]});
        out[0] = found.mean, out[plane] = found.sum, out[2 * plane] = found.difference;
        out += row;
        similar += found.value;
    }
    float const all_apart = block_sum(apart, of_warps[0]), all_similar = block_sum(similar, of_warps[1]);
    if (threadIdx.x) return;
    int64_t const blocks = int64_t(gridDim.x) * gridDim.y, block = int64_t(blockIdx.y) * gridDim.x + blockIdx.x;
    sums[block] = all_apart, sums[blocks + block] = all_similar;
}

// One block adds up the sums of all blocks, in a fixed order.
__global__ void __launch_bounds__(THREADS)
    sum_image_loss_kernel(ImagePair in, float const* sums, int64_t blocks, float* loss) {
    __shared__ double parts[2][THREADS];
    double apart = 0, similar = 0;
    for (int64_t k = threadIdx.x; k < blocks; k += THREADS) apart += sums[k], similar += sums[blocks + k];
    parts[0][threadIdx.x] = apart, parts[1][threadIdx.x] = similar;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            for (auto& part : parts) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x) return;
    double const n = double(in.height) * double(in.row), w = in.weight;
    *loss = float((1 - w) * parts[0][0] / n + w * (1 - parts[1][0] / n));
}

__global__ void __launch_bounds__(COLUMNS) compute_image_loss_backward_kernel(ImagePair in, ImageGrads d) {
    __shared__ float rows[2][SLOPES][STRIP];
    int const j = blockIdx.x * COLUMNS + threadIdx.x, row = int(in.row);
    int const begin = blockIdx.y * ROWS, end = min(begin + ROWS, int(in.height));
    int64_t const plane = in.height * in.row;
    float const each = *d.d_loss / float(plane), l1 = each * (1 - in.weight), ssim = each * in.weight;
    Strip<SLOPES> strip({d.slopes, d.slopes + plane, d.slopes + 2 * plane}, in, begin - SSIM_HALF);
    Column<SLOPES> column;
    column.clear();
    int64_t at = int64_t(begin) * row + j;
    strip.fetch(begin - SSIM_HALF);
    for (int y = begin - SSIM_HALF; y < end + SSIM_HALF; ++y) {
        auto& here = rows[y & 1];
        strip.put(here);
        __syncthreads();
        strip.fetch(y + 1);
        bool const comes_out = y >= begin + SSIM_HALF && j < row;
        float const a = comes_out ? in.rendered[at] : 0.f, b = comes_out ? in.target[at] : 0.f;
        float m[SLOPES] = {along_row(here[0]), along_row(here[1]), along_row(here[2])};
        column.push(m, m);
        if (!comes_out) continue;
        d.rendered[at] = l1 * sign_of(a - b) - ssim * ssim_backward(a, b, m[0], m[1], m[2]);
        at += row;
    }
}

dim3 strips_of(ImagePair const& in) {
    return dim3(unsigned((in.row + COLUMNS - 1) / COLUMNS), unsigned((in.height + ROWS - 1) / ROWS));
}

}  // namespace

void image_loss(ImagePair const& in, float* loss, float* slopes, Queue const& queue) {
    dim3 const grid = strips_of(in);
    int64_t const blocks = int64_t(grid.x) * grid.y;
    float* const sums = queue.memory.array<float>(2 * blocks);
    compute_image_loss_kernel<<<grid, COLUMNS, 0, queue.stream>>>(in, slopes, sums);
    sum_image_loss_kernel<<<1, THREADS, 0, queue.stream>>>(in, sums, blocks, loss);
}

void image_loss_backward(ImagePair const& in, ImageGrads const& d, Queue const& queue) {
    compute_image_loss_backward_kernel<<<strips_of(in), COLUMNS, 0, queue.stream>>>(in, d);
}

}  // namespace nurec::cuda
