// SPDX-License-Identifier: Apache-2.0
// One thread a pixel, but for the gradient of the grid: there, pixels by the hundred add to the same cells, so a block
// takes a tile of pixels and all cells that its pixels may touch, a thread adds one cell's numbers over some of the
// pixels, the block adds these up, and one atomic a number goes to memory.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "params.h"

namespace nurec::cuda {
namespace {

constexpr int TILE_WIDTH = 32, TILE_HEIGHT = 16, TILE = TILE_WIDTH * TILE_HEIGHT, ADDERS = 128;

__global__ void __launch_bounds__(THREADS) slice_grid_kernel(GridImage in, float* out) {
    int64_t const i = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    if (i >= in.pixels()) return;
    Vec3<float> const colour = load3(in.image, i);
    store3(out, i, sliced(in.grid, in.shape, in.cell(i, colour), colour));
}

__global__ void __launch_bounds__(THREADS) slice_image_backward_kernel(GridImage in, GridGrads d) {
    int64_t const i = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    if (i >= in.pixels()) return;
    Vec3<float> const colour = load3(in.image, i);
    store3(d.image, i, sliced_backward(in.grid, in.shape, in.cell(i, colour), colour, load3(d.sliced, i)));
}

// A pixel of the tile, as those who add need it.
struct TilePixel {
    GridCell<float> at;
    Vec3<float> colour, got;  // no gradient beyond the image's border
};

// The cells that a tile may touch.
struct TileCells {
    int left, top, columns, rows;

    __device__ int count(GridShape const& shape) const { return columns * rows * shape.deep; }
};

__device__ TileCells cells_of(GridImage const& in, int column, int row) {
    int const right = min(column + TILE_WIDTH, in.width) - 1, bottom = min(row + TILE_HEIGHT, in.height) - 1;
    auto const across = [&](int x) {
        return grid_step(grid_place<float>(x, in.width, in.shape.across), in.shape.across);
    };
    auto const down = [&](int y) { return grid_step(grid_place<float>(y, in.height, in.shape.down), in.shape.down); };
    GridStep<float> const first = across(column), last = across(right), upper = down(row), lower = down(bottom);
    return {first.low, upper.low, last.low + last.next - first.low + 1, lower.low + lower.next - upper.low + 1};
}

// Of a cell along an axis.
__device__ float share_of(GridStep<float> const& step, int cell) {
    if (cell == step.low) return 1 - step.share;
    return cell == step.low + step.next ? step.share : 0.f;
}

__device__ void load_tile(GridImage const& in, float const* got, int column, int row, TilePixel* tile) {
    for (int p = int(threadIdx.x); p < TILE; p += ADDERS) {
        int const x = column + p % TILE_WIDTH, y = row + p / TILE_WIDTH;
        bool const there = x < in.width && y < in.height;
        int64_t const i = there ? int64_t(y) * in.width + x : 0;
        Vec3<float> const colour = load3(in.image, i);
        tile[p] = {grid_cell(in.shape, x, y, in.width, in.height, colour), colour,
                   there ? load3(got, i) : Vec3<float>{0, 0, 0}};
    }
}

__device__ void add_pixel(TilePixel const& pixel, int x, int y, int z, float* sums) {
    float const weight = share_of(pixel.at.x, x) * share_of(pixel.at.y, y) * share_of(pixel.at.z, z);
    if (weight == 0) return;
#pragma unroll
    for (int k = 0; k < GRID_NUMBERS; ++k) sums[k] += weight * grid_gradient(k, pixel.colour, pixel.got);
}

__global__ void __launch_bounds__(ADDERS) slice_grid_backward_kernel(GridImage in, float const* got, float* d_grid) {
    __shared__ TilePixel tile[TILE];
    __shared__ float parts[GRID_NUMBERS][ADDERS];
    int const column = int(blockIdx.x) * TILE_WIDTH, row = int(blockIdx.y) * TILE_HEIGHT, t = int(threadIdx.x);
    TileCells const cells = cells_of(in, column, row);
    int const count = cells.count(in.shape), own = min(count, ADDERS), groups = ADDERS / own;
    load_tile(in, got, column, row, tile);
    for (int base = 0; base < count; base += own) {
        int const c = base + t % own, group = t / own;
        int const x = cells.left + c % cells.columns, y = cells.top + c / cells.columns % cells.rows;
        int const z = c / (cells.columns * cells.rows);
        float sums[GRID_NUMBERS] = {};
        __syncthreads();
        if (group < groups && c < count)
            for (int p = group; p < TILE; p += groups) add_pixel(tile[p], x, y, z, sums);
#pragma unroll
        for (int k = 0; k < GRID_NUMBERS; ++k) parts[k][t] = sums[k];
        __syncthreads();
        if (group || c >= count) continue;
        int const cell = (z * in.shape.down + y) * in.shape.across + x;
        for (int k = 0; k < GRID_NUMBERS; ++k) {
            float sum = 0;
            for (int g = 0; g < groups; ++g) sum += parts[k][g * own + t];
            if (sum != 0) atomicAdd(d_grid + k * in.shape.cells() + cell, sum);
        }
    }
}

}  // namespace

void slice_grid(GridImage const& in, float* sliced_image, Queue const& queue) {
    if (!in.pixels()) return;
    slice_grid_kernel<<<blocks_for(in.pixels()), THREADS, 0, queue.stream>>>(in, sliced_image);
}

void slice_grid_backward(GridImage const& in, GridGrads const& d, Queue const& queue) {
    cudaMemsetAsync(d.grid, 0, sizeof(float) * std::size_t(in.numbers()), queue.stream);
    if (!in.pixels()) return;
    slice_image_backward_kernel<<<blocks_for(in.pixels()), THREADS, 0, queue.stream>>>(in, d);
    dim3 const tiles((in.width + TILE_WIDTH - 1) / TILE_WIDTH, (in.height + TILE_HEIGHT - 1) / TILE_HEIGHT);
    slice_grid_backward_kernel<<<tiles, ADDERS, 0, queue.stream>>>(in, d.sliced, d.grid);
}

}  // namespace nurec::cuda
