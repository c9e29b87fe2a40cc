// SPDX-License-Identifier: Apache-2.0
// The Gaussians that a view may see, their places and their order. Pointers are those of the driver's device.
//
// Letters: N Gaussians, V of them visible, R lidar rays.
#pragma once

#include <vector>

#include "warp_tiles.h"
#include "../common/blocks.h"
#include "../common/cells.h"
#include "../common/device.h"
#include "../common/gaussians.h"
#include "../math/lens.cuh"
#include "../math/rays.cuh"

namespace nurec {

struct ProjectParams {
    Gaussians g;
    View<float> const* view;
    bool is_camera;                           // the view's sensor, which the host must know
    Cells cells;                              // of a lidar
    Trajectory<float> const* path = nullptr;  // of a lidar, if its shapes are wanted
    float const* features = nullptr;          // [N, 2] of a lidar, if its shapes are wanted
    WarpTiles warp_tiles = {};                // of a lidar, if its candidates are wanted; their rays do not matter
    Lens<float> const* lens = nullptr;        // of a camera with a lens that CameraModel does not have
    VisibleBlocks blocks = {nullptr};         // nothing is written of Gaussians of others
};

// Size of an Outline (math/outline.cuh), or of a row of a lidar's rays (../raster_warps/blend).
constexpr int64_t shape_floats(bool is_camera) {
    return is_camera ? 8 : 16;
}

namespace cpu {

struct Projection {
    std::vector<int64_t> index;         // [V] nearest first, equal keys by index
    std::vector<Bounds<float>> bounds;  // [V]
};

// `bits` of a depth's key (math/depth.cuh).
Projection project(ProjectParams const& p, int bits);

}  // namespace cpu

namespace cuda {

struct Visibility {
    uint8_t* visible;       // [N]
    uint32_t* keys;         // [N] of depth (math/depth.cuh); UNWANTED (common/sort.h) for hidden Gaussians
    Bounds<float>* bounds;  // [N]; null where candidates are asked for
    int bits;               // of a key
    float* shapes;          // [N, shape_floats] tests of exact lists; null: not needed
    Candidates* candidates =
        nullptr;            // [N] of a lidar's warp tiles; null: not needed. A Gaussian without any is UNWANTED
    int* counts = nullptr;  // [N] how many they are
};

// Summed-area tables [n, bands + 1, 3 columns + 1] of the cells that hold rays, over three turns.
void count_occupied(Sweeps const& sweeps, int* table, Queue const& queue);
int const* count_occupied(Sweeps const& sweeps, Queue const& queue);

// `occupied`: of a lidar.
void look(ProjectParams const& p, int const* occupied, Visibility const& out, Queue const& queue);

// The same of a camera with p.lens (project_lens.cu).
void look_through_lens(ProjectParams const& p, Visibility const& out, Queue const& queue);

// Numbers of the visible Gaussians, nearest first, equal keys by index, and their count in `count` [1]. They go to
// `index` [N] if it is not null; the rest of it is not written.
uint32_t* sort_by_depth(ProjectParams const& p, Visibility const& visibility, int64_t* count, int64_t* index,
                        Queue const& queue);

struct Sorted {
    int64_t v;       // visible Gaussians, or more: the others are zeros with empty bounds
    int64_t* index;  // [V]
    float* low;      // [V, 2]
    float* high;     // [V, 2]
};

void gather_bounds(Visibility const& visibility, uint32_t const* numbers, int64_t const* count, Sorted const& out,
                   Queue const& queue);

}  // namespace cuda
}  // namespace nurec
