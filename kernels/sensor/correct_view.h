// SPDX-License-Identifier: Apache-2.0
// A view with the estimated pose of its sensor. Pointers are those of the driver's device.
//
// Letters: K knots, C cameras.
#pragma once

#include "../common/device.h"
#include "../math/correct.cuh"

namespace nurec {

// Learned corrections of a capture's sensors.
template <class Number>
struct Corrections {
    Number* rig_rotations;        // [K, 3]
    Number* rig_translations;     // [K, 3]
    Number* camera_rotations;     // [C, 3]
    Number* camera_translations;  // [C, 3]
    Number* exposure_drift;       // [C, K, 2, 3]
    Number* camera_offsets;       // [C] seconds
};

struct CalibrationArgs {
    int64_t knots, cameras;  // K, C
    int64_t camera;          // row of the view's camera; -1: it has none
    double const* times;     // [K] seconds, evenly spaced
    double const* moment;    // [] seconds
    float const* mount;      // [4, 3] the sensor's axes on the rig, by rows, and its place
    float const* velocity;   // [6] the sensor's turning and motion in its own axes, a second
    Corrections<float const> learned;
};

struct ViewArgs {
    ViewRow<float> const* row;
    float const* start;  // [4, 4] world from sensor
    float const* end;
};

struct CorrectedView {
    ViewRow<float>* row;
    float* ends;        // [2, 4, 4] world from sensor
    float* pose_delta;  // [6] the correction in the world's axes
    float* drift;       // [2, 3] of the camera's exposure; zeros without one
    double* moment;     // [] seconds on the rig's clock
};

struct CorrectedGrads {
    float const* pose_delta;
    float const* drift;
};

namespace cpu {

void correct_view(CalibrationArgs const& known, ViewArgs const& view, CorrectedView const& out);
void correct_view_backward(CalibrationArgs const& known, ViewRow<float> const* row, CorrectedGrads const& d,
                           Corrections<float> const& grads);

}  // namespace cpu

namespace cuda {

void correct_view(CalibrationArgs const& known, ViewArgs const& view, CorrectedView const& out, Queue const& queue);
void correct_view_backward(CalibrationArgs const& known, ViewRow<float> const* row, CorrectedGrads const& d,
                           Corrections<float> const& grads, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
