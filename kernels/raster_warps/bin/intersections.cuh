// SPDX-License-Identifier: Apache-2.0
// The tests of candidates, and how their results are written: a warp tile of a lidar, or a row of an image's
// super-tiles.
#pragma once

#include "../../common/look_back.cuh"
#include "../../project/gaussian_row.cuh"
#include "super_tiles.cuh"
#include "image_rows.cuh"
#include "locate.cuh"

namespace nurec::cuda {

// A candidate, and after the test its entries of neighbouring super-tiles. `what`: before the test the warp tile
// (lidar) or the number of the candidate (image), after it the first super-tile.
template <bool CAMERA>
struct Intersection {
    uint32_t gaussian, what;
    uint32_t lists;  // of a lidar: those of the super-tile, a bit each; 0: no hit
};

template <>
struct Intersection<true> {
    uint32_t gaussian, what;
    int super_tiles;  // 0: no hit
    Interval<int16_t>
        columns[SUPER_TILE_SIDE];  // of warp tiles that each row meets, from the first super-tile's first on
};

// Pyramids and slabs are stored as arrays of 16-byte vectors, since most lanes read neighbouring warp tiles.
__device__ inline RayPyramid<float> pyramid_at(float4 const* bounds, uint32_t n, uint32_t k) {
    RayPyramid<float> warp_tile;
#pragma unroll
    for (int q = 0; q < PYRAMID_VECTORS; ++q) reinterpret_cast<float4*>(&warp_tile)[q] = bounds[n * unsigned(q) + k];
    return warp_tile;
}

// Reads a row as vectors: most lanes read the same row as their neighbours.
__device__ inline GaussianRow<true, 2> row_at(float const* rows, uint32_t gaussian) {
    constexpr unsigned VECTORS = sizeof(GaussianRow<true, 2>) / 16;
    GaussianRow<true, 2> row;
#pragma unroll
    for (unsigned q = 0; q < VECTORS; ++q)
        reinterpret_cast<float4*>(&row)[q] = reinterpret_cast<float4 const*>(rows)[VECTORS * gaussian + q];
    return row;
}

// Returns which lists of a lidar's warp tile have rays that the Gaussian may hit, a bit each.
__device__ inline uint32_t intersected_lists(BinParams const& p, BinWork const& work, uint32_t gaussian,
                                             uint32_t warp_tile) {
    constexpr uint32_t BOTH = 3;
    auto const n = uint32_t(p.warp_tiles.n);
    RayPyramid<float> const b = pyramid_at(work.bounds, n, warp_tile);
    if (!p.exact) return b.known > 0 ? BOTH : 0;
    GroupTest<float> const f = group_test(row_at(p.shapes, gaussian).frame, b);
    if (b.known > 1) return BOTH;
    if (!(b.known > 0) || f.ahead < 0) return 0;
    uint32_t intersected = 0;
    BeamSlab<float> next = work.slabs[warp_tile];
#pragma unroll
    for (int k = 0; k < BEAM_SLABS; ++k) {
        BeamSlab<float> const slab = next;
        if (k + 1 < BEAM_SLABS) next = work.slabs[n * unsigned(k + 1) + warp_tile];
        if (may_hit(f, slab)) intersected |= 1u << (2 * k / BEAM_SLABS);
    }
    return intersected;
}

// Merges lanes of a lidar. The warp tiles of a Gaussian in one super-tile are neighbours: the first lane gets their
// entry.
__device__ inline Intersection<false> joined(Intersection<false> const& intersection, uint32_t lists) {
    int const lane = int(threadIdx.x) % 32;
    uint32_t const super_tile = intersection.what / SUPER_TILE_TILES;
    bool const other_gaussian = __shfl_up_sync(ALL_LANES, intersection.gaussian, 1) != intersection.gaussian;
    bool const other_super_tile = __shfl_up_sync(ALL_LANES, super_tile, 1) != super_tile;
    bool const first = lane == 0 || other_gaussian || other_super_tile;
    unsigned const later = __ballot_sync(ALL_LANES, first) & ~((2u << lane) - 1);
    int const end = later ? __ffs(int(later)) - 1 : 32;
    uint32_t all = lists << 2 * (intersection.what % SUPER_TILE_TILES);
#pragma unroll
    for (int step = 1; step < SUPER_TILE_TILES; step *= 2) {
        uint32_t const other = __shfl_down_sync(ALL_LANES, all, step);
        if (lane + step < end) all |= other;
    }
    return {intersection.gaussian, super_tile, first ? all : 0};
}

__device__ inline Intersection<false> tested(BinParams const& p, BinWork const& work,
                                             Intersection<false> const& intersection) {
    return joined(intersection,
                  intersection.lists ? intersected_lists(p, work, intersection.gaussian, intersection.what) : 0);
}

// Columns of an image that a Gaussian hits in the rows of a super-tile, and their union.
struct IntersectedRows {
    Interval<int> of[SUPER_TILE_SIDE], all;
};

// `first`: the first of these rows, relative to the Gaussian's rows.
__device__ inline IntersectedRows intersected_rows(BinParams const& p, BinWork const& work, ImageRows const& rows,
                                                   int first) {
    IntersectedRows intersected = {{}, {1 << 16, -1}};
#pragma unroll
    for (int k = 0; k < SUPER_TILE_SIDE; ++k) {
        bool const there = first + k >= 0 && first + k < rows.rows;
        intersected.of[k] = there ? intersected_columns(p.warp_tiles, work.near, rows, first + k) : Interval<int>{1, 0};
        if (intersected.of[k].low <= intersected.of[k].high)
            intersected.all = {smaller(intersected.all.low, intersected.of[k].low),
                               larger(intersected.all.high, intersected.of[k].high)};
    }
    return intersected;
}

// Tests a row of super-tiles of an image.
__device__ inline Intersection<true> tested(BinParams const& p, BinWork const& work,
                                            Intersection<true> const& intersection) {
    Intersection<true> found = {};
    if (!intersection.super_tiles) return found;
    ImageRows const rows = work.rows[intersection.gaussian];
    int const row = rows.row / SUPER_TILE_SIDE + int(intersection.what);
    IntersectedRows const intersected = intersected_rows(p, work, rows, SUPER_TILE_SIDE * row - rows.row);
    if (intersected.all.low > intersected.all.high) return found;
    int const begin = (rows.column + intersected.all.low) / SUPER_TILE_SIDE,
              end = (rows.column + intersected.all.high) / SUPER_TILE_SIDE + 1;
    int const from = SUPER_TILE_SIDE * begin - rows.column;
#pragma unroll
    for (int k = 0; k < SUPER_TILE_SIDE; ++k)
        found.columns[k] = {int16_t(intersected.of[k].low - from), int16_t(intersected.of[k].high - from)};
    found.gaussian = list_index(p, intersection.gaussian), found.super_tiles = end - begin;
    found.what = uint32_t(rows.super_tiles + row * super_tiles_for(p.warp_tiles.columns) + begin);
    return found;
}

struct Found {
    int entries, listed;  // of super-tiles, and of lists
};

__device__ inline Found found_of(Intersection<false> const& intersection) {
    return {intersection.lists != 0, __popc(intersection.lists)};
}

__device__ inline Found found_of(Intersection<true> const& intersection) {
    if (!intersection.super_tiles) return {};
    int listed = 0;
#pragma unroll
    for (auto const& row : intersection.columns) listed += larger(row.high - row.low + 1, 0);
    return {intersection.super_tiles, listed};
}

// Returns the lists of the k-th super-tile that a row of super-tiles hits.
__device__ inline uint32_t lists_in(Intersection<true> const& intersection, int k) {
    uint32_t lists = 0;
#pragma unroll
    for (int row = 0; row < SUPER_TILE_SIDE; ++row) {
        int const low = larger(intersection.columns[row].low - SUPER_TILE_SIDE * k, 0),
                  high = smaller(intersection.columns[row].high - SUPER_TILE_SIDE * k, SUPER_TILE_SIDE - 1);
        if (low <= high) lists |= ((2u << high) - (1u << low)) << SUPER_TILE_SIDE * row;
    }
    return lists;
}

__device__ inline void write_entry(SuperTileEntries const& out, int64_t at, uint32_t super_tile, uint32_t lists,
                                   uint32_t gaussian) {
    if (at < out.capacity) out.lists[at] = super_tile << SUPER_TILE_LISTS | lists, out.gaussians[at] = gaussian;
}

// Both functions write the entries of a batch from `at` on, and return where those of the next batch begin.
__device__ inline int64_t write_batch(Intersection<false> const (&intersections)[32], SuperTileEntries const& out,
                                      int64_t at) {
    Intersection<false> const& intersection = intersections[threadIdx.x % 32];
    unsigned const all = __ballot_sync(ALL_LANES, intersection.lists != 0), lower = (1u << threadIdx.x % 32) - 1;
    if (intersection.lists)
        write_entry(out, at + __popc(all & lower), intersection.what, intersection.lists, intersection.gaussian);
    return at + __popc(all);
}

// Consecutive lanes write consecutive entries, whichever lane found them.
__device__ inline int64_t write_batch(Intersection<true> const (&intersections)[32], SuperTileEntries const& out,
                                      int64_t at) {
    WarpOffsets const place = warp_offsets(at, intersections[threadIdx.x % 32].super_tiles);
    int const before = int(place.mine - at), n = int(place.all - at);
    for (int first = 0; first < n; first += 32) {
        int const e = first + int(threadIdx.x % 32), owner = lanes_up_to(e, before) - 1;
        int const k = e - __shfl_sync(ALL_LANES, before, owner);
        Intersection<true> const& intersection = intersections[owner];
        if (e < n)
            write_entry(out, at + e, intersection.what + uint32_t(k), lists_in(intersection, k), intersection.gaussian);
    }
    return place.all;
}

}  // namespace nurec::cuda
