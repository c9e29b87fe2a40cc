// SPDX-License-Identifier: Apache-2.0
// An image through a bilateral grid, and gradients. Pointers are those of the driver's device.
//
// Letters: an image of H rows and W columns; a grid of X cells across, Y down and Z over luminance.
#pragma once

#include "../common/device.h"
#include "../math/bilateral.cuh"

namespace nurec {

struct GridImage {
    int height, width;  // H, W
    GridShape shape;
    float const* grid;   // [12, Z, Y, X]
    float const* image;  // [H, W, 3]

    NUREC_FN int64_t pixels() const { return int64_t(height) * width; }
    NUREC_FN GridCell<float> cell(int64_t pixel, Vec3<float> colour) const {
        return grid_cell(shape, int(pixel % width), int(pixel / width), width, height, colour);
    }
    NUREC_FN int64_t numbers() const { return int64_t(GRID_NUMBERS) * shape.cells(); }
};

struct GridGrads {
    float const* sliced;  // [H, W, 3]
    float* grid;          // [12, Z, Y, X]
    float* image;         // [H, W, 3]
};

namespace cpu {

void slice_grid(GridImage const& in, float* sliced);  // [H, W, 3]
void slice_grid_backward(GridImage const& in, GridGrads const& d);

}  // namespace cpu

namespace cuda {

void slice_grid(GridImage const& in, float* sliced, Queue const& queue);
void slice_grid_backward(GridImage const& in, GridGrads const& d, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
