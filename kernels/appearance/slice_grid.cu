// SPDX-License-Identifier: Apache-2.0
// One thread a pixel, but for the gradient of the grid: there, pixels by the hundred add to the same cells, so a block
// takes a tile of pixels and all cells that its pixels may touch, a thread adds one cell's numbers over some of the
// pixels, the block adds these up, and one atomic a number goes to memory.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "slice_grid.h"

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

// The values of a pixel that the sums read: 9 numbers, few enough that all blocks run at once.
struct TilePixel {
    Vec3<float> place;        // across, down and over luminance, in cells
    Vec3<float> colour, got;  // none beyond the image's border
};

__device__ int index_of(GridShape const& shape, int3 cell) {
    return (cell.z * shape.down + cell.y) * shape.across + cell.x;
}

// The cells that a tile may touch.
struct TileCells {
    int left, top, columns, rows;

    __device__ int count(GridShape const& shape) const { return columns * rows * shape.deep; }
    __device__ int3 place(int c) const {
        return make_int3(left + c % columns, top + c / columns % rows, c / (columns * rows));
    }
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

__device__ float place_of(GridStep<float> const& step) {
    return float(step.low) + step.share;
}

// Share of a cell along an axis. As a hat function it has no branches, and loops over pixels may overlap.
__device__ float share_of(float place, int cell) {
    return fmaxf(1 - fabsf(place - float(cell)), 0.f);
}

__device__ void load_tile(GridImage const& in, float const* got, int column, int row, TilePixel* tile) {
    for (int p = int(threadIdx.x); p < TILE; p += ADDERS) {
        int const x = column + p % TILE_WIDTH, y = row + p / TILE_WIDTH;
        bool const there = x < in.width && y < in.height;
        int64_t const i = int64_t(y) * in.width + x;
        Vec3<float> const none = {0, 0, 0}, colour = there ? load3(in.image, i) : none;
        GridCell<float> const at = grid_cell(in.shape, x, y, in.width, in.height, colour);
        tile[p] = {{place_of(at.x), place_of(at.y), place_of(at.z)}, colour, there ? load3(got, i) : none};
    }
}

__device__ void add_pixel(TilePixel const& pixel, int3 cell, float (&sums)[GRID_NUMBERS]) {
    float const weight =
        share_of(pixel.place.x, cell.x) * share_of(pixel.place.y, cell.y) * share_of(pixel.place.z, cell.z);
    Vec3<float> const own = weight * pixel.got;
#pragma unroll
    for (int k = 0; k < GRID_NUMBERS; ++k) sums[k] += grid_gradient(k, pixel.colour, own);
}

__global__ void __launch_bounds__(ADDERS) slice_grid_backward_kernel(GridImage in, float const* got, float* d_grid) {
    __shared__ TilePixel tile[TILE];
    __shared__ float parts[GRID_NUMBERS][ADDERS];
    int const column = int(blockIdx.x) * TILE_WIDTH, row = int(blockIdx.y) * TILE_HEIGHT, t = int(threadIdx.x);
    TileCells const cells = cells_of(in, column, row);
    int const count = cells.count(in.shape), own = min(count, ADDERS), groups = ADDERS / own, group = t / own;
    load_tile(in, got, column, row, tile);
    for (int base = 0; base < count; base += own) {
        int const here = min(own, count - base);
        int3 const cell = cells.place(base + t % own);
        float sums[GRID_NUMBERS] = {};
        __syncthreads();
        if (group < groups && t % own < here)
#pragma unroll 4
            for (int p = group; p < TILE; p += groups) add_pixel(tile[p], cell, sums);
#pragma unroll
        for (int k = 0; k < GRID_NUMBERS; ++k) parts[k][t] = sums[k];
        __syncthreads();
        for (int s = t; s < GRID_NUMBERS * here; s += ADDERS) {
            int const k = s / here, c = s % here;
            float sum = 0;
            for (int g = 0; g < groups; ++g) sum += parts[k][g * own + c];
            if (sum != 0) atomicAdd(d_grid + k * in.shape.cells() + index_of(in.shape, cells.place(base + c)), sum);
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
