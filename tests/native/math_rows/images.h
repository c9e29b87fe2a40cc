// SPDX-License-Identifier: Apache-2.0
// Adapters for SSIM, the sky, bilateral grids and exposure.
#pragma once

#include "../../../kernels/math/bilateral.cuh"
#include "../../../kernels/math/expose.cuh"
#include "../../../kernels/math/sky.cuh"
#include "../../../kernels/math/ssim.cuh"
#include "types.h"

namespace nurec::testing {

// ---- ssim

NUREC_FN Array<3> ssim_slopes(SsimMoments<D> const& m) {
    Ssim<D> const found = ssim_of(m);
    return {found.mean, found.sum, found.difference};
}

// ---- sky

struct TexelNumbers {
    D texel[4], weight[4];
};

NUREC_FN TexelNumbers texels_about(V d, D height, D width) {
    SkyPlace<D> const at = sky_place(d, int(height), int(width));
    TexelNumbers out;
    for (int corner = 0; corner < 4; ++corner)
        out.texel[corner] = at.texel(corner), out.weight[corner] = at.weight(corner);
    return out;
}

constexpr int SKY_ROWS = 3, SKY_COLUMNS = 5, SKY_TEXELS = SKY_ROWS * SKY_COLUMNS;
using SmallSky = Array<3 * SKY_TEXELS>;

// ---- bilateral grids

NUREC_FN GridShape small_grid() {
    return {4, 3, 2};
}

constexpr int GRID_WIDTH = 9, GRID_HEIGHT = 7;  // of the image
using SmallGrid = Array<GRID_NUMBERS * 24>;

NUREC_FN Array<4> step_on_axis(D place, D cells) {
    GridStep<D> const step = grid_step(place, int(cells));
    return {D(step.low), D(step.next), step.share, D(step.inside)};
}

NUREC_FN GridCell<D> cell_at(V c, D column, D row) {
    return grid_cell(small_grid(), int(column), int(row), GRID_WIDTH, GRID_HEIGHT, c);
}

NUREC_FN Array<4> flat_weights(V c, D column, D row) {
    GridCell<D> const at = cell_at(c, column, row);
    return {at.flat(0), at.flat(1), at.flat(2), at.flat(3)};
}

// Rows of the matrix times (c, 1), and their slopes over the layers.
NUREC_FN Array<6> rows_of_grid(SmallGrid const& grid, V c, D column, D row) {
    GridCell<D> const at = cell_at(c, column, row);
    Array<6> out;
    for (int i = 0; i < 3; ++i) {
        out.a[i] = grid_row<D, false>(grid.a, small_grid(), at, i, c);
        out.a[3 + i] = grid_number<D, true>(grid.a, small_grid(), at, 4 * i + 3);
    }
    return out;
}

struct SlicedGrads {
    SmallGrid grid;
    V colour;
};

NUREC_FN SlicedGrads sliced_gradients(SmallGrid const& grid, V c, D column, D row, V d) {
    GridCell<D> const at = cell_at(c, column, row);
    SlicedGrads out = {};
    for (int corner = 0; corner < GRID_CORNERS; ++corner)
        for (int k = 0; k < GRID_NUMBERS; ++k)
            out.grid.a[k * small_grid().cells() + at.cell(corner, small_grid())] +=
                at.weight(corner) * grid_gradient(k, c, d);
    out.colour = sliced_backward(grid.a, small_grid(), at, c, d);
    return out;
}

// ---- exposure

struct ExposedValue {
    D value;
    Exposure<D> by;
};

NUREC_FN ExposedValue exposed_gradients(D value, Exposure<D> const& by, V radial, D d) {
    ExposedValue out = {};
    out.value = exposed_by_backward(by, radial, value, d, out.by);
    return out;
}

}  // namespace nurec::testing
