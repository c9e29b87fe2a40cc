// SPDX-License-Identifier: Apache-2.0
// Groups the rays of a lidar with any pattern into warp tiles: by band of elevation, within a band by azimuth, 32 at a
// time; within a tile by elevation.
#include "../../common/cells.cuh"
#include "../../common/launch.cuh"
#include "../../common/sort.h"
#include "../../common/triples.cuh"
#include "../../common/warp.cuh"
#include "../../project/candidates.cuh"

namespace nurec::cuda {
namespace {

constexpr int AZIMUTH_BITS = 20;

static_assert(int64_t(MAX_BANDS) << AZIMUTH_BITS == int64_t(1) << 32);

__global__ void make_ray_keys_kernel(Sweeps sweeps, uint32_t* keys) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    Cells const& cells = sweeps.cells;
    if (i >= cells.n_rays) return;
    float const* d = cells.directions + 3 * i;
    Place<float> const at = spherical(Vec3<float>{d[0], d[1], d[2]});
    float const turn = (at.u + float(PI)) / float(2 * PI), most = (1 << AZIMUTH_BITS) - 1;
    uint32_t const step = uint32_t(larger(0.f, smaller(turn * float(1 << AZIMUTH_BITS), most)));
    keys[i] = uint32_t(sweep_of(sweeps, i) * cells.bands + band_of(cells, at.v)) << AZIMUTH_BITS | step;
}

// Finds where each band begins among the sorted rays [B + 1] and among the warp tiles. One block.
__global__ void find_bands_kernel(Sweeps sweeps, uint32_t const* keys, int* begins, int* first) {
    int const bands = int(sweeps.bands());
    for (int b = int(threadIdx.x); b <= bands; b += int(blockDim.x)) {
        int64_t low = 0, high = sweeps.cells.n_rays;
        while (low < high) {
            int64_t const middle = (low + high) / 2;
            if (keys[middle] >> AZIMUTH_BITS < uint32_t(b))
                low = middle + 1;
            else
                high = middle;
        }
        begins[b] = int(low);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    first[0] = 0;
    for (int b = 0; b < bands; ++b)
        first[b + 1] = first[b] + (begins[b + 1] - begins[b] + WARP_TILE_RAYS - 1) / WARP_TILE_RAYS;
}

// Returns the band of a warp tile; `bands`: none.
__device__ int band_with(int const* first, int bands, int64_t warp_tile) {
    int low = 0, high = bands;
    while (low < high) {
        int const middle = (low + high) / 2;
        if (first[middle + 1] <= warp_tile)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Returns the value with the key of this lane's rank (a bitonic sort over a warp).
__device__ int64_t sorted_by(float key, int64_t value) {
    int const lane = int(threadIdx.x % 32);
    for (int run = 2; run <= 32; run *= 2)
        for (int step = run / 2; step > 0; step /= 2) {
            float const other_key = __shfl_xor_sync(ALL_LANES, key, step);
            int64_t const other = __shfl_xor_sync(ALL_LANES, value, step);
            bool const lower = (lane & step) == 0, ascends = (lane & run) == 0;
            if (lower == ascends ? other_key < key : other_key > key) key = other_key, value = other;
        }
    return value;
}

// A warp takes a warp tile.
__global__ void fill_warp_tiles_kernel(Sweeps sweeps, int64_t n, uint32_t const* sorted, int const* begins,
                                       int const* first, int64_t* rays, float* azimuths, float* heights) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x, warp_tile = i / WARP_TILE_RAYS;
    if (warp_tile >= n) return;
    Cells const& cells = sweeps.cells;
    int const bands = int(sweeps.bands()), band = band_with(first, bands, warp_tile);
    int64_t const place =
        band < bands ? begins[band] + (warp_tile - first[band]) * WARP_TILE_RAYS + i % WARP_TILE_RAYS : 0;
    bool const mine = band < bands && place < begins[band + 1];
    int64_t const ray = mine ? int64_t(sorted[place]) : -1;
    rays[i] = sorted_by(mine ? cells.directions[3 * ray + 2] : 1e30f, ray);
    float const azimuth = mine ? atan2f(cells.directions[3 * ray + 1], cells.directions[3 * ray]) : 0.f;
    float const least = -warp_max(mine ? -azimuth : -1e30f), most = warp_max(mine ? azimuth : -1e30f);
    float const height = mine ? elevation_of(load3(cells.directions, ray)) : 0.f;
    float const lowest = -warp_max(mine ? -height : -1e30f), highest = warp_max(mine ? height : -1e30f);
    if (i % WARP_TILE_RAYS) return;
    azimuths[2 * warp_tile] = least, azimuths[2 * warp_tile + 1] = most;
    heights[2 * warp_tile] = lowest, heights[2 * warp_tile + 1] = highest;
}

// Bounds bands from the bounds of their warp tiles. A warp takes a band.
__global__ void bound_bands_kernel(int const* first, float const* of_tiles, float* heights) {
    int const band = int(blockIdx.x);
    float least = 1e30f, most = -1e30f;
    for (int k = first[band] + int(threadIdx.x); k < first[band + 1]; k += 32)
        least = smaller(least, of_tiles[2 * k]), most = larger(most, of_tiles[2 * k + 1]);
    least = -warp_max(-least), most = warp_max(most);
    if (threadIdx.x == 0) heights[2 * band] = least, heights[2 * band + 1] = most;
}

// azimuths [A, 2] lowest and highest of a warp tile
__global__ void fill_azimuth_bins_kernel(int64_t bands, int const* first, float const* azimuths, int* bins) {
    int const i = int(blockIdx.x * blockDim.x + threadIdx.x), band = i / (2 * AZIMUTH_BINS), side = i % 2;
    if (band >= bands) return;
    float const edge = float(i / 2 % AZIMUTH_BINS + side) / float(AZIMUTH_BINS) * float(2 * PI) - float(PI);
    int begin = first[band], end = first[band + 1];
    while (begin < end) {
        int const middle = (begin + end) / 2;
        float const* at = azimuths + 2 * middle;
        if (side ? at[0] <= edge + ANGLE_MARGIN : at[1] < edge - ANGLE_MARGIN)
            begin = middle + 1;
        else
            end = middle;
    }
    bins[i] = begin;
}

}  // namespace

void group_sweep_rays(Sweeps const& sweeps, GroupedRays const& out, Queue const& queue) {
    int64_t const n = sweeps.cells.n_rays, warp_tiles = max_warp_tiles(sweeps);
    auto const array = [&] { return queue.memory.array<uint32_t>(n); };
    uint32_t *keys = array(), *sorted_keys = array(), *sorted = array();
    auto* begins = queue.memory.array<int>(sweeps.bands() + 1);
    if (n) make_ray_keys_kernel<<<blocks_for(n), THREADS, 0, queue.stream>>>(sweeps, keys);
    if (n) sort_pairs({n, keys, nullptr, sorted_keys, sorted}, AZIMUTH_BITS + bits_for(sweeps.bands()), queue);
    find_bands_kernel<<<1, THREADS, 0, queue.stream>>>(sweeps, sorted_keys, begins, out.first);
    auto *const azimuths = queue.memory.array<float>(2 * warp_tiles), *const heights =
                                                                          queue.memory.array<float>(2 * warp_tiles);
    auto const bands = unsigned(sweeps.bands());
    unsigned const blocks = blocks_for(WARP_TILE_RAYS * warp_tiles);
    if (warp_tiles)
        fill_warp_tiles_kernel<<<blocks, THREADS, 0, queue.stream>>>(sweeps, warp_tiles, sorted, begins, out.first,
                                                                     out.rays, azimuths, heights);
    fill_azimuth_bins_kernel<<<blocks_for(2 * AZIMUTH_BINS * bands), THREADS, 0, queue.stream>>>(bands, out.first,
                                                                                                 azimuths, out.bins);
    bound_bands_kernel<<<bands, 32, 0, queue.stream>>>(out.first, heights, out.heights);
}

}  // namespace nurec::cuda
