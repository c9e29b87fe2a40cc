// SPDX-License-Identifier: Apache-2.0
// Lists of the Gaussians that each tile looks at. Entries are written Gaussian after Gaussian, nearest first, so a
// stable sort by tile keeps the order of depth.
#include "../common/cells.cuh"
#include "../common/launch.cuh"
#include "../common/sort.h"
#include "tile.h"

namespace nurec::cuda {
namespace {

struct Box {
    int64_t x0, x1, y0, y1;  // inclusive; columns of a lidar are not wrapped
};

__device__ int64_t clamped(float a, int64_t low, int64_t high) {
    return a > float(high) ? high : a < float(low) ? low : int64_t(a);
}

// Pixel centres of tile i lie in [tile i + 0.5, tile (i + 1) - 0.5].
__device__ Box camera_box(TileParams const& p, int64_t i) {
    auto const size = float(p.tile);
    int64_t const nx = p.nx(), ny = p.ny();
    float const *low = p.low + 2 * i, *high = p.high + 2 * i;
    return {
        clamped(ceilf((low[0] - (size - 0.5f)) / size), 0, nx), clamped(floorf((high[0] - 0.5f) / size), -1, nx - 1),
        clamped(ceilf((low[1] - (size - 0.5f)) / size), 0, ny), clamped(floorf((high[1] - 0.5f) / size), -1, ny - 1)};
}

__device__ Box lidar_box(TileParams const& p, int64_t i) {
    int64_t const x0 = column_of(p.cells, p.low[2 * i]), x1 = column_of(p.cells, p.high[2 * i]);
    return {x0, min(x1, x0 + p.cells.columns - 1), band_of(p.cells, p.low[2 * i + 1]),
            band_of(p.cells, p.high[2 * i + 1])};
}

// Calls a function with every tile that a Gaussian is listed in.
template <class Function>
__device__ void for_each_tile(TileParams const& p, Tiles const& tiles, int64_t i, Function const& function) {
    Box const box = p.is_camera ? camera_box(p, i) : lidar_box(p, i);
    int64_t const nx = p.is_camera ? p.nx() : p.cells.columns;
    for (int64_t y = box.y0; y <= box.y1; ++y) {
        for (int64_t x = box.x0; x <= box.x1; ++x) {
            if (p.is_camera) {
                function(y * nx + x);
            } else {
                int64_t const cell = y * nx + wrapped(x, nx);
                for (int64_t copy = tiles.first[cell]; copy < tiles.first[cell + 1]; ++copy) function(copy);
            }
        }
    }
}

__global__ void count_tile_entries_kernel(TileParams p, Tiles all, int64_t* counts) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i > p.v) return;
    int64_t n = 0;
    if (i < p.v) for_each_tile(p, all, i, [&](int64_t) { ++n; });
    counts[i] = n;
}

__global__ void write_tile_entries_kernel(TileParams p, Tiles all, int64_t const* counts, int64_t capacity,
                                          Written out) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.v) return;
    int64_t place = counts[i];
    for_each_tile(p, all, i, [&](int64_t tile) {
        if (place < capacity) {
            out.tiles[place] = uint32_t(tile);
            out.gaussians[place] = uint32_t(p.index[i]);
        }
        ++place;
    });
}

__global__ void count_cell_rays_kernel(Cells cells, int* cell, int64_t* counts) {
    int64_t const r = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (r >= cells.n_rays) return;
    cell[r] = cell_of(cells, cells.directions + 3 * r);
    atomicAdd(reinterpret_cast<unsigned long long*>(counts) + cell[r], 1ull);
}

__global__ void count_cell_tiles_kernel(int64_t n_cells, int64_t max_rays, int64_t* counts) {
    int64_t const c = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (c <= n_cells) counts[c] = c < n_cells ? (counts[c] + max_rays - 1) / max_rays : 0;
}

// Rays sorted by cell: the nth ray of its cell goes to the nth place of the cell's tiles.
__global__ void place_rays_kernel(Cells cells, int64_t max_rays, uint32_t const* sorted_cell, uint32_t const* sorted,
                                  int64_t const* first, int64_t* rays) {
    int64_t const e = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (e >= cells.n_rays) return;
    uint32_t const cell = sorted_cell[e];
    int64_t low = 0, high = e;  // the first entry of this cell
    while (low < high) {
        int64_t const middle = (low + high) / 2;
        if (sorted_cell[middle] < cell)
            low = middle + 1;
        else
            high = middle;
    }
    rays[first[cell] * max_rays + (e - low)] = sorted[e];
}

}  // namespace

void count_entries(TileParams const& p, Tiles const& tiles, int64_t* counts, Queue const& queue) {
    auto* each = queue.memory.array<int64_t>(p.v + 1);
    count_tile_entries_kernel<<<blocks_for(p.v + 1), THREADS, 0, queue.stream>>>(p, tiles, each);
    exclusive_sum(each, counts, p.v + 1, queue);
}

void list_entries(TileParams const& p, Tiles const& tiles, int64_t const* counts, Entries const& out,
                  Queue const& queue) {
    Written const w = entries_with_capacity(out.capacity, counts + p.v, queue);
    if (p.v)
        write_tile_entries_kernel<<<blocks_for(p.v), THREADS, 0, queue.stream>>>(p, tiles, counts, out.capacity, w);
    sort_into_lists(w, tiles.n, out, queue);
}

void count_ray_tiles(TileParams const& p, CellTiles const& out, Queue const& queue) {
    int64_t const n = p.n_cells(), rays = p.cells.n_rays;
    auto* const counts = zeros<int64_t>(n + 1, queue);
    if (rays) count_cell_rays_kernel<<<blocks_for(rays), THREADS, 0, queue.stream>>>(p.cells, out.cell, counts);
    count_cell_tiles_kernel<<<blocks_for(n + 1), THREADS, 0, queue.stream>>>(n, p.max_rays, counts);
    exclusive_sum(counts, out.first, n + 1, queue);
}

void fill_ray_tiles(TileParams const& p, CellTiles const& tiles, int64_t n_tiles, int64_t* rays, Queue const& queue) {
    int64_t const n = p.cells.n_rays;
    if (n_tiles) cudaMemsetAsync(rays, 0xff, sizeof(int64_t) * n_tiles * p.max_rays, queue.stream);
    if (!n) return;
    auto const array = [&] { return queue.memory.array<uint32_t>(n); };
    uint32_t *sorted_cell = array(), *sorted = array();
    auto const* keys = reinterpret_cast<uint32_t const*>(tiles.cell);  // not negative
    sort_pairs({n, keys, nullptr, sorted_cell, sorted}, bits_for(p.n_cells()), queue);
    place_rays_kernel<<<blocks_for(n), THREADS, 0, queue.stream>>>(p.cells, p.max_rays, sorted_cell, sorted,
                                                                   tiles.first, rays);
}

}  // namespace nurec::cuda
