// SPDX-License-Identifier: Apache-2.0
// Which Gaussians a view may see, where, and in which order: plain arrays.
//
// Letters: N Gaussians, V of them visible, R lidar rays, A tiles of P rays, L entries of all tiles' lists.
#pragma once

#include <vector>

#include "../math/project.cuh"
#include "../common/gaussians_cpu.h"

namespace nurec::cpu {

// A lidar's grid of cells: bands of elevation with ascending inner edges, each cut into columns of azimuth.
struct Cells {
    float const* edges;  // [bands - 1] radians
    int64_t bands, columns;
    float const* directions;  // [R, 3] of the rays, lidar frame
    int64_t n_rays;
};

struct Projection {
    std::vector<int64_t> index;         // [V] nearest first, ties by index
    std::vector<Bounds<float>> bounds;  // [V]
};

struct TileLists {
    std::vector<int64_t> rays;  // [A, P], -1 where a tile has fewer; empty for a camera, whose tiles are known
    int64_t rays_per_tile = 0;
    std::vector<int64_t> offsets;    // [A + 1]
    std::vector<int64_t> gaussians;  // [L]
};

// `cells` is null for a camera.
Projection project(Gaussians const& g, View<float> const& view, Cells const* cells);
TileLists tile_camera(int64_t n, float const* low, float const* high, int64_t const* index, int64_t width,
                      int64_t height, int64_t tile);
TileLists tile_lidar(int64_t n, float const* low, float const* high, int64_t const* index, Cells const& cells,
                     int64_t max_rays);

int64_t band_of(Cells const& cells, float elevation);
int64_t column_of(Cells const& cells, float azimuth);    // not wrapped
std::vector<int64_t> cells_of_rays(Cells const& cells);  // [R]

}  // namespace nurec::cpu
