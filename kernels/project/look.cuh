// SPDX-License-Identifier: Apache-2.0
// Whether a view may see a Gaussian, where, and how far away.
#pragma once

#include "../common/cells.cuh"
#include "../common/gaussians.cuh"
#include "params.h"

namespace nurec::cuda {

// Whether a sphere about a point, seen from the sensor, touches a cell that holds a ray.
__device__ inline bool near_rays(Cells const& cells, int const* table, Vec3<float> p, float radius) {
    Place<float> const at = spherical(p);
    float const angle = asinf(fminf(1.2f * radius / fmaxf(at.depth, 1e-6f), 1.f));
    float around = 1.2f * angle / fmaxf(cosf(fabsf(at.v) + angle), 1e-6f);  // beyond a pole, all around
    around = angle > 1 ? float(PI) : fminf(around, float(PI));
    int64_t const n = cells.columns, width = 3 * n + 1;
    // within the table also where a mean is NaN
    int64_t const first = min(max(column_of(cells, at.u - around) + n - 1, int64_t(0)), 3 * n);
    int64_t const last = min(max(column_of(cells, at.u + around) + n + 2, int64_t(0)), 3 * n);
    int64_t const low = band_of(cells, at.v - 1.2f * angle), high = band_of(cells, at.v + 1.2f * angle) + 1;
    return table[high * width + last] - table[low * width + last] - table[high * width + first] +
               table[low * width + first] >
           0;
}

__device__ inline uint32_t sortable(float a) {
    uint32_t const bits = __float_as_uint(a + 0.f);  // -0 and 0 alike
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// CAMERA: the sensor; a kernel of its own, for a camera's needs fewer registers.
template <bool CAMERA>
__device__ bool may_see(ProjectParams const& p, View<float> const& view, int const* occupied, Vec3<float> mean,
                        Vec3<float> s, Vec3<float> v, float reach) {
    Vec3<float> const local = view.motion.at(mean, {0, 0, 0}, 0.5f);
    float radius = reach * fmaxf(s.x, fmaxf(s.y, s.z)) + 0.5f * view.motion.seconds * sqrtf(dot(v, v));
    radius += 0.5f * (view.travel + view.turning * sqrtf(dot(local, local)));
    return CAMERA ? in_cone(view.camera, local, radius) : near_rays(p.cells, occupied, local, radius);
}

// Writes place `number` of `out`, whose bounds and key are those of a Gaussian that may be seen.
template <bool CAMERA>
__device__ void look_at(ProjectParams const& p, View<float> const& view, int const* occupied, int64_t i, float opacity,
                        Looked const& out, int64_t number) {
    Vec3<float> const mean = mean_of(p.g, i), s = load3(p.g.scales, i), v = velocity_of(p.g, i);
    float const reach = reach_of(opacity);
    bool const seen = reach > 0 && may_see<CAMERA>(p, view, occupied, mean, s, v, reach);
    out.visible[number] = seen;
    if (!seen) return;
    Quat<float> const q = quat_of(p.g, i);
    out.bounds[number] = CAMERA ? camera_bounds(view.camera, view.motion, mean, q, s, v, reach)
                                : lidar_bounds(view.lidar, view.motion, mean, q, s, v, reach);
    out.keys[number] = sortable(CAMERA ? dot(mean, view.forward) : sqrtf(dot(mean, mean)));
}

}  // namespace nurec::cuda
