// SPDX-License-Identifier: Apache-2.0
// Sensors that are elsewhere than their capture says; nurec_lite/scene/calibration.py, nurec_lite/splat/corrected.py
// and nurec_lite/splat/pose_delta.py are the specification.
#pragma once

#include "view_row.cuh"

namespace nurec {

// Place of a moment among evenly spaced knots: knot k + 1 has the weight, knot k the rest.
template <class T>
struct Between {
    int k;
    T weight;
};

// Beyond the first and the last of n >= 2 knots these hold.
template <class T>
NUREC_FN Between<T> between_knots(double first, double spacing, int n, double moment) {
    double const place = smaller(larger((moment - first) / spacing, 0.0), double(n - 1));
    int const k = int(smaller(floor(place), double(n - 2)));
    return {k, T(place - k)};
}

// A rotation vector in radians and a translation in metres, in the axes of the corrected sensor.
template <class T>
struct Correction {
    Vec3<T> turn, shift;
};

template <class T>
struct Mount {
    Mat3<T> axes;  // of a sensor, in the rig's
    Vec3<T> place;
};

// A sensor's, by that of the rig it is mounted on and by its own.
template <class T>
NUREC_FN Correction<T> sensor_correction(Mount<T> const& mount, Correction<T> rig, Correction<T> own) {
    Vec3<T> const shift = rig.shift + cross(rig.turn, mount.place);
    return {transposed_times(mount.axes, rig.turn) + own.turn, transposed_times(mount.axes, shift) + own.shift};
}

// The correction of a sensor that was where it will be so many seconds later, to first order.
template <class T>
NUREC_FN Correction<T> drifted(Correction<T> c, Correction<T> velocity, T seconds) {
    return {c.turn + seconds * velocity.turn, c.shift + seconds * velocity.shift};
}

// dL/d(seconds). dL/d(the correction) equals that of the moved correction.
template <class T>
NUREC_FN T drifted_backward(Correction<T> velocity, Correction<T> d) {
    return dot(velocity.turn, d.turn) + dot(velocity.shift, d.shift);
}

// dL/d(the rig's) from the sensor's; dL/d(its own) is the sensor's.
template <class T>
NUREC_FN Correction<T> sensor_correction_backward(Mount<T> const& mount, Correction<T> d) {
    Vec3<T> const shift = mount.axes * d.shift;
    return {mount.axes * d.turn + cross(mount.place, shift), shift};
}

// In the world's axes, of a sensor with these at the start of its view (sensor from world).
template <class T>
NUREC_FN Correction<T> in_world(Mat3<T> const& R, Correction<T> c) {
    return {transposed_times(R, c.turn), transposed_times(R, c.shift)};
}

template <class T>
NUREC_FN Correction<T> in_world_backward(Mat3<T> const& R, Correction<T> d) {
    return {R * d.turn, R * d.shift};
}

// A^T B.
template <class T>
NUREC_FN Mat3<T> transposed_product(Mat3<T> const& a, Mat3<T> const& b) {
    Mat3<T> const t = transposed(a);
    return {transposed_times(b, t.r0), transposed_times(b, t.r1), transposed_times(b, t.r2)};
}

// A pose [R t] as rows of four, moved on its own side: R E and R shift + t.
template <class T>
NUREC_FN void move_pose(T const* pose, Mat3<T> const& E, Vec3<T> shift, T* moved) {
    for (int k = 0; k < 3; ++k) {
        Vec3<T> const row = {pose[4 * k], pose[4 * k + 1], pose[4 * k + 2]}, turned = transposed_times(E, row);
        moved[4 * k] = turned.x, moved[4 * k + 1] = turned.y, moved[4 * k + 2] = turned.z;
        moved[4 * k + 3] = dot(row, shift) + pose[4 * k + 3];
    }
    moved[12] = moved[13] = moved[14] = 0, moved[15] = 1;
}

// The row of a view from where its sensor is believed to have been.
template <class T>
NUREC_FN void correct_row(ViewRow<T>& row, Correction<T> c) {
    Motion<T>& motion = row.view.motion;
    Trajectory<T>& path = row.path;
    Quat<T> const q = rotvec_to_quat(c.turn), half = quat_multiply(path.q, rotvec_to_quat(T(0.5) * path.turn));
    Mat3<T> const E = quat_to_matrix(q);
    Vec3<T> const off0 = transposed_times(motion.R0, c.shift), off1 = transposed_times(motion.R1, c.shift);
    Vec3<T> const middle = T(0.5) * (off0 + off1), way = (path.end + off1) - (path.start + off0);
    motion.R0 = transposed_product(E, motion.R0), motion.R1 = transposed_product(E, motion.R1);
    path.start = path.start + (off0 - middle), path.end = path.end + (off1 - middle);
    motion.t0 = T(-1) * (motion.R0 * path.start), motion.t1 = T(-1) * (motion.R1 * path.end);
    path.q = quat_multiply(path.q, q), path.turn = transposed_times(E, path.turn);
    row.view.forward = transposed(quat_to_matrix(quat_multiply(half, q))).r2;
    row.view.travel = sqrt(dot(way, way));
    row.centre = row.centre + middle;
}

// Gradient of a sensor's rotation w about the view's centre and of its translation v, from a Gaussian at r from there:
// moving the sensor moves all Gaussians the other way, mu' = mu - w x r - v and q' = (1, -w / 2) q.
template <class T>
NUREC_FN Correction<T> pose_vjp(Vec3<T> r, Quat<T> q, Vec3<T> d_mean, Quat<T> d_quat) {
    Vec3<T> const u = {q.x, q.y, q.z}, du = {d_quat.x, d_quat.y, d_quat.z};
    Vec3<T> const spin = (q.w * du - d_quat.w * u) + cross(u, du);
    return {T(-1) * cross(r, d_mean) - T(0.5) * spin, T(-1) * d_mean};
}

}  // namespace nurec
