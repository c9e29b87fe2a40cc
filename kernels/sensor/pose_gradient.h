// SPDX-License-Identifier: Apache-2.0
// A sensor's pose gradient, computed from the gradients of the Gaussians that it sees. Pointers are those of the
// driver's device.
#pragma once

#include "../common/device.h"
#include "../math/correct.cuh"

namespace nurec {

// Gaussians in world space, and their gradients.
struct PlacedSet {
    int64_t n;
    float const* means;    // [n, 3] metres
    float const* quats;    // [n, 4] unit, wxyz
    float const* d_means;  // [n, 3]
    float const* d_quats;  // [n, 4]
};

constexpr int MAX_PLACED = 2;  // static and moving Gaussians

struct PlacedGaussians {
    PlacedSet sets[MAX_PLACED];  // the last may be empty
    Vec3<float> const* centre;   // metres, the centre of the sensor's turn
};

constexpr int POSE_DELTA_FLOATS = 6;  // a rotation vector and a translation, in the world's axes

namespace cpu {

void pose_gradient(PlacedGaussians const& in, float* gradient);  // [6]

}  // namespace cpu

namespace cuda {

void pose_gradient(PlacedGaussians const& in, float* gradient, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
