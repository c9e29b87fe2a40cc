// SPDX-License-Identifier: Apache-2.0
// A scene as one of its views sees it.
#pragma once

#include "../../common/gaussians.cuh"
#include "views.h"

namespace nurec::cuda {

// Returns the Gaussians of a view, except their opacities: see `opacity_of`.
__device__ inline Gaussians seen_from(ViewedScene const& scene, int64_t view) {
    Gaussians g = scene.g;
    int64_t const first = (g.n - g.n_still) * view;
    g.means += 3 * first, g.quats += 4 * first, g.velocities += 3 * first;
    g.centre = &scene.rows[view].centre;
    return g;
}

__device__ inline float opacity_of(ViewedScene const& scene, int64_t view, int64_t i) {
    int64_t const still = scene.g.n_still, a = i - still;
    return a < 0 ? scene.g.opacities[i] : scene.moving_opacities[(scene.g.n - still) * view + a];
}

}  // namespace nurec::cuda
