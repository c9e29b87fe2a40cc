// SPDX-License-Identifier: Apache-2.0
// Arrays of Gaussians in world space, as the drivers of either device take them: S that stand still, then A that move.
// Pointers are those of the driver's device.
//
// Letters: S and A Gaussians, N = S + A.
#pragma once

#include <cstdint>

#include "../math/vec.cuh"

namespace nurec {

struct Gaussians {
    int64_t n, n_still;         // N, S
    float const* still_means;   // [S, 3] metres
    float const* still_quats;   // [S, 4] unit, wxyz
    float const* means;         // [A, 3] of those that move
    float const* quats;         // [A, 4]
    float const* velocities;    // [A, 3] metres a second
    float const* scales;        // [N, 3] metres
    float const* opacities;     // [N]
    Vec3<float> const* centre;  // metres: the view's centre; means are read relative to it
};

// The same arrays of dL/d(parameter).
struct GaussianGrads {
    float* still_means;
    float* still_quats;
    float* means;
    float* quats;
    float* velocities;
    float* scales;
    float* opacities;
};

}  // namespace nurec
