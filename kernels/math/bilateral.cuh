// SPDX-License-Identifier: Apache-2.0
// A bilateral grid: affine transforms of colour over place and luminance; nurec_lite/scene/bilateral.py is the
// specification. A grid is [12, Z, Y, X]: the rows of a 3x4 matrix less the identity; its last column is added.
// Corner cells lie on corner pixels, the first and the last layer at luminance 0 and 1.
#pragma once

#include "vec.cuh"

namespace nurec {

constexpr int GRID_NUMBERS = 12, GRID_CORNERS = 8;

struct GridShape {
    int across, down, deep;  // X, Y, Z

    NUREC_FN int cells() const { return across * down * deep; }
};

// Between two cells of an axis.
template <class T>
struct GridStep {
    int low, next;  // the first cell, and how far it is to the second: 0 where an axis has one
    T share;        // of the second, 0 to 1
    bool inside;    // the place may go both ways
};

// `place` counts cells; beyond the ends it is clamped.
template <class T>
NUREC_FN GridStep<T> grid_step(T place, int cells) {
    T const last = T(cells - 1);
    bool const inside = place > 0 && place < last;
    T const kept = place > 0 ? (place < last ? place : last) : T(0);  // NaN becomes 0
    int const floored = int(kept), low = floored < cells - 1 ? floored : (cells > 1 ? cells - 2 : 0);
    return {low, cells > 1 ? 1 : 0, kept - T(low), inside};
}

// Place of pixel `pixel` of n along an axis; the middle if n is 1.
template <class T>
NUREC_FN T grid_place(int pixel, int n, int cells) {
    return n > 1 ? T(pixel) / T(n - 1) * T(cells - 1) : T(0.5) * T(cells - 1);
}

template <class T>
NUREC_FN Vec3<T> luminance_weights() {  // Rec. ITU-R BT.601
    return {T(0.299), T(0.587), T(0.114)};
}

// Eight cells, numbered by bits: the next column, the next row, the next layer.
template <class T>
struct GridCell {
    GridStep<T> x, y, z;

    NUREC_FN int cell(int corner, GridShape const& shape) const {
        int const column = x.low + (corner & 1 ? x.next : 0), row = y.low + (corner & 2 ? y.next : 0);
        return ((z.low + (corner & 4 ? z.next : 0)) * shape.down + row) * shape.across + column;
    }
    NUREC_FN T flat(int corner) const {
        return (corner & 1 ? x.share : 1 - x.share) * (corner & 2 ? y.share : 1 - y.share);
    }
    NUREC_FN T weight(int corner) const { return flat(corner) * (corner & 4 ? z.share : 1 - z.share); }
};

template <class T>
NUREC_FN GridCell<T> grid_cell(GridShape const& shape, int column, int row, int width, int height, Vec3<T> colour) {
    T const luminance = dot(luminance_weights<T>(), colour);
    return {grid_step(grid_place<T>(column, width, shape.across), shape.across),
            grid_step(grid_place<T>(row, height, shape.down), shape.down),
            grid_step(luminance * T(shape.deep - 1), shape.deep)};
}

// Number k of the matrix, or its slope over luminance, by layers.
template <class T, bool Slope>
NUREC_FN T grid_number(T const* grid, GridShape const& shape, GridCell<T> const& at, int k) {
    T const* const numbers = grid + int64_t(k) * shape.cells();
    T sum = 0;
    for (int corner = 0; corner < GRID_CORNERS; ++corner) {
        T const weight = Slope ? (corner & 4 ? at.flat(corner) : -at.flat(corner)) : at.weight(corner);
        sum += weight * numbers[at.cell(corner, shape)];
    }
    return sum;
}

// Row i of the matrix, times the colour and one.
template <class T, bool Slope>
NUREC_FN T grid_row(T const* grid, GridShape const& shape, GridCell<T> const& at, int i, Vec3<T> c) {
    return grid_number<T, Slope>(grid, shape, at, 4 * i) * c.x +
           grid_number<T, Slope>(grid, shape, at, 4 * i + 1) * c.y +
           grid_number<T, Slope>(grid, shape, at, 4 * i + 2) * c.z + grid_number<T, Slope>(grid, shape, at, 4 * i + 3);
}

template <class T>
NUREC_FN Vec3<T> sliced(T const* grid, GridShape const& shape, GridCell<T> const& at, Vec3<T> c) {
    return c + Vec3<T>{grid_row<T, false>(grid, shape, at, 0, c), grid_row<T, false>(grid, shape, at, 1, c),
                       grid_row<T, false>(grid, shape, at, 2, c)};
}

// Gradient of the colour that was sliced, from that of the result; through its luminance as well.
template <class T>
NUREC_FN Vec3<T> sliced_backward(T const* grid, GridShape const& shape, GridCell<T> const& at, Vec3<T> c, Vec3<T> d) {
    Vec3<T> sum = d;
    T slope = 0;
    for (int i = 0; i < 3; ++i) {
        Vec3<T> const row = {grid_number<T, false>(grid, shape, at, 4 * i),
                             grid_number<T, false>(grid, shape, at, 4 * i + 1),
                             grid_number<T, false>(grid, shape, at, 4 * i + 2)};
        T const own = i == 0 ? d.x : i == 1 ? d.y : d.z;
        sum = sum + own * row;
        if (at.z.inside) slope += own * grid_row<T, true>(grid, shape, at, i, c);
    }
    return sum + (slope * T(shape.deep - 1)) * luminance_weights<T>();
}

// Gradient of number k of the matrix.
template <class T>
NUREC_FN T grid_gradient(int k, Vec3<T> c, Vec3<T> d) {
    T const row = k < 4 ? d.x : k < 8 ? d.y : d.z;
    int const j = k % 4;
    return j == 3 ? row : row * (j == 0 ? c.x : j == 1 ? c.y : c.z);
}

}  // namespace nurec
