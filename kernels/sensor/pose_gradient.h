// SPDX-License-Identifier: Apache-2.0
// The gradient of a sensor's pose, from those of the Gaussians that it sees. Pointers are those of the driver's device.
#pragma once

#include "../common/device.h"
#include "../math/correct.cuh"

namespace nurec {

// Gaussians that were placed, and their gradients.
struct NudgedSet {
    int64_t n;
    float const* means;    // [n, 3] metres
    float const* quats;    // [n, 4] unit, wxyz
    float const* d_means;  // [n, 3]
    float const* d_quats;  // [n, 4]
};

constexpr int MAX_PLACED = 2;  // those that stand still, and those that move

struct NudgedGaussians {
    NudgedSet sets[MAX_PLACED];  // the last may be empty
    Vec3<float> const* centre;   // metres, about which the sensor turns
};

constexpr int POSE_DELTA_FLOATS = 6;  // a rotation vector and a translation, in the world's axes

namespace cpu {

void pose_gradient(NudgedGaussians const& in, float* gradient);  // [6]

}  // namespace cpu

namespace cuda {

void pose_gradient(NudgedGaussians const& in, float* gradient, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
