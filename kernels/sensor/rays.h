// SPDX-License-Identifier: Apache-2.0
// Rays of a view. Pointers are those of the driver's device. Letters: R rays.
#pragma once

#include "../common/device.h"
#include "../math/rays.cuh"

namespace nurec {

struct RayParams {
    int64_t n;                      // R
    bool alike;                     // all rays have the first fraction
    Trajectory<float> const* path;  // of the sensor
    float const* directions;        // [R, 3] unit, sensor frame
    float const* fractions;         // [R] 0 at the start of the view, 1 at its end
    float* origins;                 // [R, 3] metres, relative to the centre of the view; null: not needed
    float* world;                   // [R, 3] unit, world axes
    float* delays;                  // [R] seconds after the middle of the view
};

namespace cpu {

void make_rays(RayParams const& p);

}  // namespace cpu

namespace cuda {

void make_rays(RayParams const& p, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
