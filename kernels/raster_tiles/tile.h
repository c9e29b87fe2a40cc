// SPDX-License-Identifier: Apache-2.0
// Lists of the Gaussians that each tile looks at. Pointers are those of the driver's device.
//
// Letters: V visible Gaussians, A tiles of P rays, L entries of all tiles' lists.
#pragma once

#include <vector>

#include "../common/cells.h"
#include "../common/device.h"
#include "lists.h"

namespace nurec {

struct TileParams {
    int64_t v;
    int64_t const* index;  // [V] nearest first
    float const* low;      // [V, 2]
    float const* high;     // [V, 2]
    bool is_camera;
    int64_t width, height, tile;  // pixels, of a camera
    Cells cells;                  // of a lidar, and below
    int64_t max_rays;             // a cell with more is split

    constexpr int64_t nx() const { return (width + tile - 1) / tile; }
    constexpr int64_t ny() const { return (height + tile - 1) / tile; }
    constexpr int64_t n_cells() const { return cells.bands * cells.columns; }
    // As many tiles as the rays can fill, for any distribution over cells: all full ones, and one more for each cell.
    constexpr int64_t most_tiles() const {
        return cells.n_rays / max_rays + (n_cells() < cells.n_rays ? n_cells() : cells.n_rays);
    }
};

namespace cpu {

struct TileLists {
    std::vector<int64_t> rays;  // [A, P], -1 where a tile has fewer; empty for a camera
    int64_t rays_per_tile = 0;
    std::vector<int64_t> offsets;    // [A + 1]
    std::vector<int64_t> gaussians;  // [L]
};

TileLists tile(TileParams const& p);

}  // namespace cpu

namespace cuda {

// Tiles of a lidar: each ray's cell [R] and the first tile of each [bands * columns + 1]; then `rays` [A, max_rays].
struct CellTiles {
    int* cell;
    int64_t* first;
};

void count_ray_tiles(TileParams const& p, CellTiles const& out, Queue const& queue);
void fill_ray_tiles(TileParams const& p, CellTiles const& tiles, int64_t n_tiles, int64_t* rays, Queue const& queue);

struct Tiles {
    int64_t n;             // A
    int64_t const* first;  // as above; of a camera null
};

// counts [V + 1]: places of the Gaussians' entries; the last is the number of all.
void count_entries(TileParams const& p, Tiles const& tiles, int64_t* counts, Queue const& queue);

void list_entries(TileParams const& p, Tiles const& tiles, int64_t const* counts, Entries const& out,
                  Queue const& queue);

}  // namespace cuda
}  // namespace nurec
