// SPDX-License-Identifier: Apache-2.0
// The grid over a lidar's sphere: where a direction lies in it.
#pragma once

#include "../math/sensor.cuh"
#include "cells.h"

namespace nurec::cuda {

__device__ inline int band_of(Cells const& cells, float elevation) {
    int low = 0, high = int(cells.bands) - 1;
    while (low < high) {
        int const middle = (low + high) / 2;
        if (cells.edges[middle] < elevation)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct Bands {
    int low, high;
};

// Those that two elevations are in, as band_of has them. Neither search waits for the other's loads,
// and lanes stay together.
__device__ inline Bands bands_of(Cells const& cells, float low, float high) {
    int const n = int(cells.bands);
    Bands found = {0, 0};
    for (int step = n > 1 ? 1 << (31 - __clz(n - 1)) : 0; step; step /= 2) {
        int const a = found.low + step, b = found.high + step;
        float const below_a = cells.edges[smaller(a, n - 1) - 1], below_b = cells.edges[smaller(b, n - 1) - 1];
        found.low = (a < n) & (below_a < low) ? a : found.low, found.high = (b < n) & (below_b < high) ? b : found.high;
    }
    return found;
}

__device__ inline int column_of(Cells const& cells, float azimuth) {  // not wrapped
    float const column = floorf((azimuth + float(PI)) / float(2 * PI) * float(cells.columns));
    return static_cast<int>(larger(smaller(column, 1e9f), -1e9f));  // an integer holds it at any azimuth
}

__device__ inline int64_t wrapped(int64_t column, int64_t columns) {
    int64_t const rest = column % columns;
    return rest < 0 ? rest + columns : rest;
}

__device__ inline int cell_of(Cells const& cells, float const* d) {
    Place<float> const at = spherical(Vec3<float>{d[0], d[1], d[2]});
    return static_cast<int>(band_of(cells, at.v) * cells.columns + wrapped(column_of(cells, at.u), cells.columns));
}

// The sweep that a ray belongs to.
__device__ inline int64_t sweep_of(Sweeps const& all, int64_t ray) {
    int64_t low = 0, high = all.begins ? all.n - 1 : 0;
    while (low < high) {
        int64_t const middle = (low + high) / 2;
        if (all.begins[middle + 1] <= ray)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

}  // namespace nurec::cuda
