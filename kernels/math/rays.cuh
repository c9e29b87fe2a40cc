// SPDX-License-Identifier: Apache-2.0
// Rays of a sensor that moves while it measures; nurec_lite/splat/views.py is the specification.
#pragma once

#include "gaussian.cuh"
#include "pose.cuh"

namespace nurec {

// The sensor from the start to the end of a view.
template <class T>
struct Trajectory {
    Quat<T> q;           // axes at the start, unit
    Vec3<T> turn;        // rotation vector from there to the axes at the end, in the sensor's frame at the start
    Vec3<T> start, end;  // positions relative to the centre of the view
    T seconds;           // from start to end
};

// Slerp and lerp between the ends: q exp(f turn), start + f (end - start).
template <class T>
NUREC_FN Pose<T> sensor_at(Trajectory<T> const& path, T fraction) {
    return {quat_multiply(path.q, rotvec_to_quat(fraction * path.turn)), lerp(path.start, path.end, fraction)};
}

// The ray of a sensor's direction, in world axes; `pose` is the sensor's at that fraction of the view.
template <class T>
NUREC_FN Ray<T> ray_at(Trajectory<T> const& path, Pose<T> const& pose, Vec3<T> direction, T fraction) {
    return {quat_rotate(pose.q, direction), pose.t, (fraction - T(0.5)) * path.seconds};
}

}  // namespace nurec
