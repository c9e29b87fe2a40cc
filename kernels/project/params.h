// SPDX-License-Identifier: Apache-2.0
// Which Gaussians a view may see, where, and in which order; and the lists of tiles. All pointers are the device's.
//
// Letters: N Gaussians, V of them visible, R lidar rays, A tiles of P rays, L entries of all tiles' lists.
#pragma once

#include "../common/gaussians.h"
#include "../math/project.cuh"
#include "../common/launch.cuh"

namespace nurec::cuda {

struct Cells {
    float const* edges;  // [bands - 1] radians, ascending
    int64_t bands, columns;
    float const* directions;  // [R, 3] of the rays, lidar frame
    int64_t n_rays;
};

struct ProjectParams {
    Gaussians g;
    View<float> view;
    Cells cells;          // of a lidar
    int const* occupied;  // [bands + 1, 3 columns + 1] summed-area table of cells that hold rays, of a lidar
    // results
    uint8_t* visible;       // [N]
    uint32_t* keys;         // [N] of depth, ascending
    Bounds<float>* bounds;  // [N]
};

// [bands + 1, 3 columns + 1]; `cell` [R] and `there` [bands * columns] (zeros) are working memory.
void count_occupied(Cells const& cells, int* cell, int* there, int* table, cudaStream_t stream);
void look(ProjectParams const& p, cudaStream_t stream);

struct SortedParams {
    int64_t v;
    uint8_t const* visible;       // [N]; null: all that `index` lists are. Then V = N, and what is hidden comes last
    uint32_t const* index;        // [V] ascending; not read, and may be null, if `visible` is given
    uint32_t const* keys;         // [N]
    Bounds<float> const* bounds;  // [N]
    int64_t* out_index;           // [V] nearest first, ties by index
    float* low;                   // [V, 2]
    float* high;                  // [V, 2]
};

void sort_by_depth(SortedParams const& p, Allocator const& memory, cudaStream_t stream);

struct TileParams {
    int64_t v;
    float const* low;      // [V, 2]
    float const* high;     // [V, 2]
    int64_t const* index;  // [V]
    bool is_camera;
    int64_t width, height, tile;  // pixels, of a camera
    Cells cells;                  // of a lidar
    int64_t const* first;         // [bands * columns + 1] tiles of each cell, of a lidar
    int64_t n_tiles;
};

// counts [V + 1]: places of the Gaussians' entries; the last is the number of all.
void count_entries(TileParams const& p, int64_t* counts, Allocator const& memory, cudaStream_t stream);
// gaussians [room]: where it is too small, some entries are left out, and where it is too large, zeros follow, which
// no offset covers.
void list_entries(TileParams const& p, int64_t const* counts, int64_t room, int64_t* offsets, int64_t* gaussians,
                  Allocator const& memory, cudaStream_t stream);

// Rays of a lidar in tiles of at most max_rays: `first` [cells + 1] as above; then `rays` [A, max_rays].
void count_ray_tiles(Cells const& cells, int64_t max_rays, int* cell, int64_t* first, Allocator const& memory,
                     cudaStream_t stream);
void fill_ray_tiles(Cells const& cells, int64_t max_rays, int const* cell, int64_t const* first, int64_t n_tiles,
                    int64_t* rays, Allocator const& memory, cudaStream_t stream);

}  // namespace nurec::cuda
