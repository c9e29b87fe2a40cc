// SPDX-License-Identifier: Apache-2.0
// Rays of a view. All pointers are the device's. Letters: R rays.
#pragma once

#include "../math/rays.cuh"
#include "../common/launch.cuh"

namespace nurec::cuda {

struct RayParams {
    int64_t n;                // R
    bool alike;               // all rays have the first fraction
    Trajectory<float> path;   // of the sensor
    float const* directions;  // [R, 3] unit, sensor frame
    float const* fractions;   // [R] 0 at the start of the view, 1 at its end
    float* origins;           // [R, 3] metres, relative to the centre of the view
    float* world;             // [R, 3] unit, world axes
    float* delays;            // [R] seconds after the middle of the view
};

void make_rays(RayParams const& p, cudaStream_t stream);

}  // namespace nurec::cuda
