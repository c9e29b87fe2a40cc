// SPDX-License-Identifier: Apache-2.0
// Place of a Gaussian's numbers: among the static ones or the moving ones.
#pragma once

#include "gaussians.h"
#include "../math/gaussian.cuh"
#include "triples.cuh"

namespace nurec::cuda {

// Rows of a tensor may begin anywhere; nearly all begin where one vector holds a row.
__device__ inline bool in_vectors(void const* a) {
    return reinterpret_cast<uintptr_t>(a) % sizeof(float4) == 0;
}

__device__ inline Quat<float> load_quat(float const* a, int64_t i) {
    if (in_vectors(a)) return load4(a, i);
    return {a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]};
}

__device__ inline void store_quat(float* a, int64_t i, Quat<float> q) {
    if (in_vectors(a)) return store4(a, i, q);
    a[4 * i] = q.w, a[4 * i + 1] = q.x, a[4 * i + 2] = q.y, a[4 * i + 3] = q.z;
}

__device__ inline Vec3<float> mean_of(Gaussians const& g, int64_t i) {
    return (i < g.n_still ? load3(g.still_means, i) : load3(g.means, i - g.n_still)) - *g.centre;
}

__device__ inline Quat<float> quat_of(Gaussians const& g, int64_t i) {
    return i < g.n_still ? load_quat(g.still_quats, i) : load_quat(g.quats, i - g.n_still);
}

__device__ inline Vec3<float> velocity_of(Gaussians const& g, int64_t i) {
    return i < g.n_still ? Vec3<float>{0, 0, 0} : load3(g.velocities, i - g.n_still);
}

__device__ inline Frame<float> frame_of(Gaussians const& g, int64_t i) {
    return make_frame(mean_of(g, i), quat_of(g, i), load3(g.scales, i), velocity_of(g, i));
}

__device__ inline void store_placed(GaussianGrads const& d, int64_t n_still, int64_t i, Vec3<float> mean, Quat<float> q,
                                    Vec3<float> v) {
    if (i < n_still) {
        store3(d.still_means, i, mean), store_quat(d.still_quats, i, q);
    } else {
        int64_t const a = i - n_still;
        store3(d.means, a, mean), store_quat(d.quats, a, q), store3(d.velocities, a, v);
    }
}

}  // namespace nurec::cuda
