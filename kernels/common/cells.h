// SPDX-License-Identifier: Apache-2.0
// The grid over a lidar's sphere: bands of elevation with ascending inner edges, each cut into columns of azimuth.
// Letters: R lidar rays.
#pragma once

#include <cstdint>
#include <vector>

namespace nurec {

struct Cells {
    float const* edges;  // [bands - 1] radians
    int64_t bands, columns;
    float const* directions;  // [R, 3] of the rays, lidar frame
    int64_t n_rays;
};

// Rays of several sweeps of one lidar, one sweep after another.
struct Sweeps {
    Cells cells;            // of one; its directions are those of all
    int64_t n;              // sweeps
    int64_t const* begins;  // [n + 1] first ray of a sweep; null: there is one

    constexpr int64_t bands() const { return n * cells.bands; }
};

namespace cpu {

int64_t band_of(Cells const& cells, float elevation);
int64_t column_of(Cells const& cells, float azimuth);    // not wrapped
std::vector<int64_t> cells_of_rays(Cells const& cells);  // [R]

}  // namespace cpu
}  // namespace nurec
