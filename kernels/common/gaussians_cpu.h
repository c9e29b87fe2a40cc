// SPDX-License-Identifier: Apache-2.0
// Place of a Gaussian's numbers: among the static ones or the moving ones.
#pragma once

#include "gaussians.h"
#include "../math/se3.cuh"

namespace nurec::cpu {

struct WarpOffsets {
    Vec3<float> mean;  // relative to the centre
    float const *quat, *velocity;
};

inline Vec3<float> load3(float const* a, int64_t i) {
    return {a[3 * i], a[3 * i + 1], a[3 * i + 2]};
}

inline Quat<float> load_quat(float const* a, int64_t i) {
    return {a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]};
}

inline void store3(float* a, int64_t i, Vec3<float> v) {
    a[3 * i] = v.x, a[3 * i + 1] = v.y, a[3 * i + 2] = v.z;
}

inline void store_quat(float* a, int64_t i, Quat<float> q) {
    a[4 * i] = q.w, a[4 * i + 1] = q.x, a[4 * i + 2] = q.y, a[4 * i + 3] = q.z;
}

inline WarpOffsets placed(Gaussians const& g, int64_t i) {
    static constexpr float NONE[3] = {0, 0, 0};
    int64_t const a = i - g.n_still;
    if (a < 0) return {load3(g.still_means, i) - *g.centre, g.still_quats + 4 * i, NONE};
    return {load3(g.means, a) - *g.centre, g.quats + 4 * a, g.velocities + 3 * a};
}

}  // namespace nurec::cpu
