// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "../math/sensor.cuh"
#include "cells.h"

namespace nurec::cpu {

int64_t band_of(Cells const& cells, float elevation) {
    return std::lower_bound(cells.edges, cells.edges + cells.bands - 1, elevation) - cells.edges;
}

int64_t column_of(Cells const& cells, float azimuth) {
    float const column = floorf((azimuth + float(PI)) / float(2 * PI) * float(cells.columns));
    return int64_t(larger(smaller(column, 1e15f), -1e15f));  // an integer holds it at any azimuth
}

std::vector<int64_t> cells_of_rays(Cells const& cells) {
    std::vector<int64_t> out(cells.n_rays);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < cells.n_rays; ++r) {
        float const* d = cells.directions + 3 * r;
        Place<float> const at = spherical(Vec3<float>{d[0], d[1], d[2]});
        int64_t const column = column_of(cells, at.u) % cells.columns;
        out[r] = band_of(cells, at.v) * cells.columns + (column < 0 ? column + cells.columns : column);
    }
    return out;
}

}  // namespace nurec::cpu
