// SPDX-License-Identifier: Apache-2.0
// Gaussians that move with their tracks, and the derivatives; nurec_lite/geometry/tracks.py (interpolate) and
// nurec_lite/scene/collect.py are the specification.
//
// Gaussians lie track by track. They are moved in blocks of up to `size` rows of one track: block b of track k takes
// those of rows (b - k) size to (b - k + 1) size that are the track's. A track's first block is its start / size + k,
// so any block finds its track from the starts alone. Every track has one block at least; some blocks have no rows.
#pragma once

#include <cstdint>

#include "pose.cuh"

namespace nurec {

NUREC_FN int64_t first_block(int64_t start, int64_t track, int64_t size) {
    return start / size + track;
}

// Whether a track's first block is `block` or one before it: without dividing.
NUREC_FN bool begins_by(int64_t start, int64_t track, int64_t block, int64_t size) {
    return start < (block - track + 1) * size;
}

// Number of a track's blocks with rows; they are its first ones.
NUREC_FN int64_t blocks_with_rows(int64_t begin, int64_t end, int64_t size) {
    return begin < end ? (end - 1) / size - begin / size + 1 : 0;
}

// The last track with a first block not after `block`.
NUREC_FN int64_t track_of_block(int64_t const* starts, int64_t tracks, int64_t block, int64_t size) {
    int64_t low = 0, high = tracks;
    while (high - low > 1) {
        int64_t const middle = (low + high) / 2;
        (begins_by(starts[middle], middle, block, size) ? low : high) = middle;
    }
    return low;
}

// Rows of the keyframes before and after a time.
struct Keys {
    int64_t before, after;
    double fraction;  // of the way from one to the other, 0 to 1
    double rate;      // one by the seconds between them; 0 where the pose stands still
};

// Keyframes around a time, for a track with the keyframes begin to end; `passed` of them are not later than the time.
NUREC_FN Keys keys_around(double const* key_times, int64_t begin, int64_t end, int64_t passed, double time) {
    int64_t const last = end - 1, before = begin + larger<int64_t>(smaller(passed - 1, last - 1 - begin), 0);
    int64_t const after = smaller(before + 1, last);
    double const span = larger(key_times[after] - key_times[before], 1e-9);
    double const clamped = smaller(larger(time, key_times[begin]), key_times[last]);
    bool const moves = time >= key_times[begin] && time <= key_times[last] && after > before;
    return {before, after, (clamped - key_times[before]) / span, moves ? 1 / span : 0};
}

// 1 from the first to the last, else 0.
NUREC_FN float present(double first, double last, double time) {
    return time >= first && time <= last ? 1.f : 0.f;
}

template <class T>
struct MovingPose {
    Quat<T> q;         // unit
    Vec3<T> t;         // metres
    Vec3<T> velocity;  // metres a second
    Vec3<T> spin;      // radians a second, world axes
};

template <class T>
NUREC_FN MovingPose<T> operator+(MovingPose<T> const& a, MovingPose<T> const& b) {
    return {a.q + b.q, a.t + b.t, a.velocity + b.velocity, a.spin + b.spin};
}

// Pose between keyframes with quaternions of any length: lerp and slerp at constant speed.
template <class T>
NUREC_FN MovingPose<T> pose_at(Pose<T> a, Pose<T> b, T fraction, T rate) {
    Quat<T> const q = normalized(a.q);
    Vec3<T> const turn = quat_to_rotvec(quat_multiply(quat_conjugate(q), normalized(b.q)));
    return {quat_multiply(q, rotvec_to_quat(fraction * turn)), lerp(a.t, b.t, fraction), rate * (b.t - a.t),
            rate * quat_rotate(q, turn)};
}

template <class T>
NUREC_FN PosePair<T> pose_at_backward(Pose<T> a, Pose<T> b, T fraction, T rate, MovingPose<T> d) {
    Quat<T> const q0 = normalized(a.q), q1 = normalized(b.q), inverse = quat_conjugate(q0);
    Quat<T> const between = quat_multiply(inverse, q1);
    Vec3<T> const turn = quat_to_rotvec(between), part = fraction * turn;
    QuatPair<T> const outer = quat_multiply_backward(q0, rotvec_to_quat(part), d.q);
    RotateGrad<T> const spin = quat_rotate_backward(q0, turn, rate * d.spin);
    Vec3<T> const d_turn = fraction * rotvec_to_quat_backward(part, outer.b) + spin.v;
    QuatPair<T> const inner = quat_multiply_backward(inverse, q1, quat_to_rotvec_backward(between, d_turn));
    Quat<T> const d_q0 = outer.a + spin.q + quat_conjugate(inner.a);
    return {{normalized_backward(a.q, d_q0), (1 - fraction) * d.t - rate * d.velocity},
            {normalized_backward(b.q, inner.b), fraction * d.t + rate * d.velocity}};
}

template <class T>
struct Moved {
    Vec3<T> mean;      // metres, world
    Quat<T> quat;      // world
    Vec3<T> velocity;  // metres a second
};

// A Gaussian with its track: q m + t, q r, v + w x (q m); r is a unit quaternion.
template <class T>
NUREC_FN Moved<T> moved(MovingPose<T> const& pose, Vec3<T> mean, Quat<T> quat) {
    Vec3<T> const arm = quat_rotate(pose.q, mean);
    return {arm + pose.t, quat_multiply(pose.q, quat), pose.velocity + cross(pose.spin, arm)};
}

// The same for many Gaussians of a track: matrices take 18 products for the mean and the velocity.
template <class T>
struct alignas(4 * sizeof(T)) PoseMatrices {
    Mat3<T> turn, turning;  // R, [w]x R
    Vec3<T> t, velocity;
    Quat<T> q;
};

template <class T>
NUREC_FN PoseMatrices<T> matrices_of(MovingPose<T> const& pose) {
    Mat3<T> const R = quat_to_matrix(pose.q);
    Vec3<T> const w = pose.spin;
    Mat3<T> const turning = {w.y * R.r2 - w.z * R.r1, w.z * R.r0 - w.x * R.r2, w.x * R.r1 - w.y * R.r0};
    return {R, turning, pose.t, pose.velocity, pose.q};
}

template <class T>
NUREC_FN Moved<T> moved(PoseMatrices<T> const& pose, Vec3<T> mean, Quat<T> quat) {
    return {pose.turn * mean + pose.t, quat_multiply(pose.q, quat), pose.turning * mean + pose.velocity};
}

template <class T>
struct MovedGrad {
    MovingPose<T> pose;
    Vec3<T> mean;
    Quat<T> quat;
};

// d . (w x a) = a . (d x w) = w . (a x d).
template <class T>
NUREC_FN MovedGrad<T> moved_backward(MovingPose<T> const& pose, Vec3<T> mean, Quat<T> quat, Moved<T> const& d) {
    Vec3<T> const arm = quat_rotate(pose.q, mean);
    RotateGrad<T> const by_arm = quat_rotate_backward(pose.q, mean, d.mean + cross(d.velocity, pose.spin));
    QuatPair<T> const by_quat = quat_multiply_backward(pose.q, quat, d.quat);
    return {{by_arm.q + by_quat.a, d.mean, d.velocity, cross(arm, d.velocity)}, by_arm.v, by_quat.b};
}

}  // namespace nurec
