// SPDX-License-Identifier: Apache-2.0
// Warp tiles of 32 neighbouring rays, and the lists of Gaussians that their rays may hit. A warp tile of an image has
// one list. One of a lidar has two, for its lower and its upper beams: a Gaussian that lies between beams then enters
// far fewer lists. All pointers are the device's.
//
// Letters: N Gaussians, V of them visible, R rays, A warp tiles, P rays of a list, B bands of elevation, L entries of
// all lists.
#pragma once

#include "../common/cells.h"
#include "../common/device.h"
#include "../common/gaussians.h"
#include "../common/sort.h"
#include "../math/ray_pyramid.cuh"
#include "../math/conic.cuh"

struct float4;  // CUDA's

namespace nurec {

constexpr int WARP_TILE_RAYS = 32;

constexpr int lists_per_tile(bool is_camera) {
    return is_camera ? 1 : 2;
}

constexpr int rays_per_list(bool is_camera) {  // P
    return WARP_TILE_RAYS / lists_per_tile(is_camera);
}

// A super-tile is 16 neighbouring lists, of an image those of 4 x 4 warp tiles. Entries are sorted by super-tile.
constexpr int SUPER_TILE_LISTS = 16, SUPER_TILE_SIDE = 4;
constexpr int SUPER_TILE_TILES = SUPER_TILE_LISTS / lists_per_tile(false);  // of a lidar
constexpr int64_t MAX_LISTS = int64_t(SUPER_TILE_LISTS) << 16;  // of all views: a super-tile's number has 16 bits

constexpr int super_tiles_for(int warp_tiles) {  // in a row or column of so many
    return (warp_tiles + SUPER_TILE_SIDE - 1) / SUPER_TILE_SIDE;
}

constexpr int PYRAMID_VECTORS = sizeof(RayPyramid<float>) / 16;
constexpr int AZIMUTH_BINS = 2048;  // of azimuth, for the look-up of a lidar's warp tiles
constexpr int BEAM_SLABS = 6;       // of a lidar's warp tile (math/ray_pyramid.cuh) at most, half of them of each list

// The warp tiles of an image lie in a grid; they are numbered super-tile by super-tile, row by row in each. Those of a
// lidar are ordered by band of elevation, then by azimuth; the rays of one by elevation.
struct WarpTiles {
    int64_t n;            // A
    int64_t const* rays;  // [A, 32], -1 where a warp tile has fewer
    bool is_camera;
    int columns, rows, width,
        height;        // of an image's grid; pixels of a warp tile. Warp tiles that complete super-tiles have no rays
    Cells cells;       // of a lidar; their columns do not matter
    int const* first;  // [B + 1] first warp tile of a band
    int const* bins;   // [B, AZIMUTH_BINS, 2] for each bin of azimuth: the first warp tile that reaches
                       // beyond its begin, and the first that begins beyond its end
    float const* heights;  // [B, 2] radians of elevation: lower and upper limit of a band's rays

    constexpr int64_t lists() const { return n * lists_per_tile(is_camera); }
    constexpr int64_t super_tiles() const { return (lists() + SUPER_TILE_LISTS - 1) / SUPER_TILE_LISTS; }
    constexpr int super_tiles_of_image() const { return super_tiles_for(columns) * super_tiles_for(rows); }
};

namespace cuda {
struct Candidates;
}

struct BinParams {
    Gaussians g;
    int64_t v;
    int64_t const* index;          // [V] nearest first; null: lists hold places in this order
    int64_t const* count;          // [1] so many of the V count
    Bounds<float> const* bounds;   // [N] of an image, in its plane
    cuda::Candidates* candidates;  // [N] of a lidar, and how many they are; null: they are in the order of the V, and
    int const* counts;             // yet to be found
    WarpTiles warp_tiles;
    float const* directions;  // [R, 3] unit
    float const* delays;      // [R] seconds after the Gaussians' time
    bool exact;           // lists leave out Gaussians that no ray of the warp tile hits, though their bounds touch it
    float const* shapes;  // [N, shape_floats] of the V, as nurec_lite::project returns them, without index [V]; null
                          // where lists are not exact. Rays of a lidar read them
    View<float> const* view;  // of a camera
};

namespace cuda {

// Returns the most warp tiles that a lidar's rays can fill: all full ones, and one more for each band.
constexpr int64_t max_warp_tiles(Sweeps const& sweeps) {
    int64_t const bands = sweeps.bands(), n = sweeps.cells.n_rays;
    return n / WARP_TILE_RAYS + (bands < n ? bands : n);
}

constexpr int64_t MAX_BANDS = 1 << 12;  // of all sweeps: their number goes into a key's highest 12 bits

// rays [A, 32], first [B + 1], bins [B, AZIMUTH_BINS, 2] and heights [B, 2] of a lidar, as in WarpTiles, with
// A = max_warp_tiles. The bands of a second sweep follow those of the first.
struct GroupedRays {
    int64_t* rays;
    int *first, *bins;
    float* heights;
};

void group_sweep_rays(Sweeps const& sweeps, GroupedRays const& out, Queue const& queue);

// The candidates of a Gaussian: the warp tiles that its bounds touch. In an image they are a rectangle; in a sweep some
// bands of elevation and an interval of azimuth. A row is a row of the image's grid or a band of the lidar.
struct alignas(16) Candidates {
    int row0, row1;       // inclusive
    float from, to;       // azimuth of a lidar: from in [-pi, pi), to - from at most 2 pi
    uint32_t numbers[4];  // see below
};

// `numbers` of an image: the first column and the number of columns. Of a lidar, two 16-bit row ends in each: for the
// first rows from row0 on, the number of candidates up to and including the row; COUNT_OVERFLOW if 16 bits are too few.
constexpr int ROW_ENDS = 8;
constexpr uint32_t COUNT_OVERFLOW = 0xffff;

// The rows of an image's warp tiles that a Gaussian may hit, and the columns of each row: all columns; those of its
// outline, in pixels from the first warp tile; or spans, row by row.
struct alignas(16) ImageRows {
    enum Kind : uint32_t { BOX, ELLIPSE, MAX_NEAR_PLANE_SPANS } kind;
    int super_tiles;                      // of the views before
    uint16_t row, column, rows, columns;  // of warp tiles
    union {
        Outline<float> ellipse;
        int spans;  // the first of `NearPlaneCases`, which has one a row
    };
};
static_assert(sizeof(ImageRows) == 48);

// Gaussians that reach the camera's plane and have no outline (math/conic.cuh); a view has few of them.
struct NearPlaneCases {
    int64_t capacity;      // of spans
    int* counts;           // [2] Gaussians, and spans; those beyond the capacity have none
    uint32_t* which;       // [V]
    Interval<int>* spans;  // [capacity] columns of a row
};

// Totals after the intersection: entries of super-tiles and of lists. If there were too few batches, `enough` is the
// number of entries that would provide them.
struct Counts {
    int64_t entries;
    unsigned long long listed;
    int64_t enough;

    NUREC_FN int64_t needed() const { return larger(larger(entries, int64_t(listed)), enough); }
};

// Work arrays. The candidates of a Gaussian are its warp tiles of a lidar, or its rows of super-tiles of an image.
// Candidates of all Gaussians are numbered consecutively; a batch is 32 of them.
struct BinWork {
    float4* bounds;                  // [PYRAMID_VECTORS, A] of a lidar: RayPyramid<float>, see hits.cuh
    BeamSlab<float>* slabs;          // [BEAM_SLABS, A] of a lidar
    Candidates* candidates;          // [V] of a lidar, or [N] as `index` has them
    ImageRows* rows;                 // [V] of an image
    NearPlaneCases near;             // of an image
    int64_t* begins;                 // [V + 1] a Gaussian's first candidate; the last is the number of all
    int64_t batches;                 // capacity W, enough for all candidates or not; 0: not known yet
    uint32_t* batch_first_gaussian;  // [W] the Gaussian that has a batch's first candidate
    uint64_t* states;                // [tiles of Gaussians] zeros at first, see look_back.cuh
    unsigned* next;                  // [1] 0 at first: the next tile of Gaussians
    Zeros zeros;                     // for the steps that follow, if their size is known
};

constexpr int BATCHES_PER_GAUSSIAN = 2,
              ENTRIES_PER_BATCH = 4;  // capacity for candidates: 64 a Gaussian, and 8 an entry
constexpr int64_t max_batches(int64_t visible, int64_t capacity) {
    return BATCHES_PER_GAUSSIAN * visible + capacity / ENTRIES_PER_BATCH + 1;
}

// Fills `work`; its `begins` are the caller's. capacity: entries of all lists; -1: not known yet.
void number_candidates(BinParams const& p, BinWork const& work, Queue const& queue);
BinWork make_bin_work(BinParams const& p, int64_t* begins, int64_t capacity, Queue const& queue);

// Assigns batches to Gaussians, if their number was not known before.
void assign_batches(BinParams const& p, BinWork& work, int64_t batches, Queue const& queue);

struct ListEntries {
    int64_t capacity;  // L: where it is too small, some entries are left out, and where it is too large, zeros follow
    int64_t* offsets;  // [lists + 1]
    int* gaussians;    // [L]
};

// needed [1]: entries of all lists; if there were too few batches, a larger number that would provide them.
void count_entries(BinParams const& p, BinWork& work, int64_t* needed, Queue const& queue);
void list_entries(BinParams const& p, BinWork& work, ListEntries const& out, int64_t* needed, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
