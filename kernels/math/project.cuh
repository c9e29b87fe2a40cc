// SPDX-License-Identifier: Apache-2.0
// Bounds of a Gaussian in the sensor's plane by the unscented transform (3DGUT, Wu et al. 2025): alpha 1, beta 2, kappa
// 0, so the centre weighs 0 in the mean and 2 in the covariance, the other six points 1/6. nurec_lite/splat/project.py
// is the specification.
#pragma once

#include "gaussian.cuh"
#include "sensor.cuh"

namespace nurec {

template <class T>
struct Bounds {
    T low_u, low_v, high_u, high_v;
};

constexpr float NOWHERE = 1e30f;  // low end of bounds that hold nothing; their high end is -NOWHERE

// Standard deviations to where the response falls below 1/255; 0 where it never reaches it.
template <class T>
NUREC_FN T reach_of(T opacity) {
    return sqrt(2 * larger(T(log(opacity * T(255))), T(0)));
}

// sqrt(3) s_k R_k: sigma points are mu, mu + these and mu - these.
template <class T>
NUREC_FN void sigma_axes(Quat<T> q, Vec3<T> s, Vec3<T> (&axes)[3]) {
    Mat3<T> const Rt = transposed(quat_to_matrix(q));
    T const root = T(1.7320508075688772);
    axes[0] = (root * s.x) * Rt.r0, axes[1] = (root * s.y) * Rt.r1, axes[2] = (root * s.z) * Rt.r2;
}

template <class T>
NUREC_FN Bounds<T> unscented_bounds(Place<T> const (&at)[7], T reach) {
    T mean_u = 0, mean_v = 0;
    for (int k = 1; k < 7; ++k) mean_u += at[k].u / 6, mean_v += at[k].v / 6;
    T du = at[0].u - mean_u, dv = at[0].v - mean_v;
    T var_u = 2 * du * du, var_v = 2 * dv * dv;
    for (int k = 1; k < 7; ++k) {
        du = at[k].u - mean_u, dv = at[k].v - mean_v;
        var_u += du * du / 6, var_v += dv * dv / 6;
    }
    T const extent_u = reach * sqrt(var_u), extent_v = reach * sqrt(var_v);
    return {mean_u - extent_u, mean_v - extent_v, mean_u + extent_u, mean_v + extent_v};
}

template <class T>
NUREC_FN bool any_nearer(Place<T> const (&at)[7], T limit) {
    bool found = false;
    for (int k = 0; k < 7; ++k) found = found | (at[k].depth < limit);
    return found;
}

template <class T>
NUREC_FN bool finite(Bounds<T> const& b) {
    T const sum = b.low_u + b.low_v + b.high_u + b.high_v;
    return sum - sum == 0;
}

// Whether a sphere about a point in the sensor's frame may reach the image.
template <class T>
NUREC_FN bool in_cone(CameraModel<T> const& camera, Vec3<T> p, T radius) {
    T const margin = camera.bends() ? T(1.3) : T(1);  // distortion widens the cone
    T const tan_x = margin * larger(camera.cx, camera.width - camera.cx) / camera.fx;
    T const tan_y = margin * larger(camera.cy, camera.height - camera.cy) / camera.fy;
    bool const inside_x = fabs(p.x) - tan_x * p.z < radius * sqrt(1 + tan_x * tan_x);
    bool const inside_y = fabs(p.y) - tan_y * p.z < radius * sqrt(1 + tan_y * tan_y);
    return (p.z + radius > T(NEAR)) & inside_x & inside_y;
}

// A Gaussian with a sigma point nearer than NEAR gets the whole plane: nothing linear holds there.
template <class T>
NUREC_FN Bounds<T> camera_bounds(CameraModel<T> const& camera, Motion<T> const& motion, Vec3<T> mean, Quat<T> q,
                                 Vec3<T> s, Vec3<T> v, T reach) {
    Vec3<T> axes[3];
    Place<T> at[7];
    sigma_axes(q, s, axes);
    at[0] = camera.appear(motion, mean, v);
#pragma unroll  // else the points lie in memory
    for (int k = 0; k < 3; ++k) {
        at[1 + k] = camera.appear(motion, mean + axes[k], v);
        at[4 + k] = camera.appear(motion, mean - axes[k], v);
    }
    Bounds<T> const b = unscented_bounds(at, reach);
    return any_nearer(at, T(NEAR)) || !finite(b) ? Bounds<T>{0, 0, camera.width, camera.height} : b;
}

// Bounds over a sweep's seam: the sweep ends at the azimuth where it begins, so a moving Gaussian there is seen
// twice, from either pose, and gets both places. A lidar that does not spin may look anywhere at any time of the sweep.
// middle: the mean where the lidar sees it, at `at`.
template <class T>
NUREC_FN Bounds<T> over_the_seam(LidarModel<T> const& lidar, Moving<T> const& mean, Vec3<T> middle, Place<T> at,
                                 Bounds<T> b) {
    Vec3<T> const start = mean.at(T(0)), end = mean.at(T(1));
    T const u0 = turn_between(middle, start), u1 = turn_between(middle, end);
    T const v0 = elevation_of(start) - at.v, v1 = elevation_of(end) - at.v;
    Bounds<T> const wide = {b.low_u + smaller(smaller(u0, u1), T(0)), b.low_v + smaller(smaller(v0, v1), T(0)),
                            b.high_u + larger(larger(u0, u1), T(0)), b.high_v + larger(larger(v0, v1), T(0))};
    T const first = floor((wide.low_u - lidar.azimuth_start) / T(2 * PI));
    T const last = floor((wide.high_u - lidar.azimuth_start) / T(2 * PI));
    return first != last || !lidar.spins() ? wide : b;
}

template <class T>
NUREC_FN Bounds<T> lidar_bounds(LidarModel<T> const& lidar, Motion<T> const& motion, Vec3<T> mean, Quat<T> q, Vec3<T> s,
                                Vec3<T> v, T reach) {
    Vec3<T> axes[3];
    Place<T> at[7];
    sigma_axes(q, s, axes);
    Moving<T> const m = moving(motion, mean, v);
    Vec3<T> const middle = lidar.appear(motion, m, axes, at);
    Bounds<T> const b = over_the_seam(lidar, m, middle, at[0], unscented_bounds(at, reach));
    Bounds<T> const whole = {T(-PI), T(-PI / 2), T(PI), T(PI / 2)};
    return any_nearer(at, T(NEAR)) || !finite(b) ? whole : b;
}

}  // namespace nurec
