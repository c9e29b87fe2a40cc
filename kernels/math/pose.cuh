// SPDX-License-Identifier: Apache-2.0
// Poses between two poses, and their derivatives; nurec_lite/geometry/se3.py is the specification.
//
// Quotients such as sin(a / 2) / a are replaced by their series where a is small, so that equal poses have a value and
// a gradient like all others.
#pragma once

#include "se3.cuh"

namespace nurec {

constexpr double SMALL_ANGLE = 1e-8;  // squared radians; below, the series are exact to rounding

// sin(a / 2) / a and its derivative by a^2.
template <class T>
struct Sinc {
    T value, slope;
};

template <class T>
NUREC_FN Sinc<T> half_sinc(T a2) {
    if (a2 < T(SMALL_ANGLE)) return {T(0.5) - a2 / 48, T(-1) / 48};
    T const a = sqrt(a2), value = sin(a / 2) / a;
    return {value, (cos(a / 2) / 2 - value) / (2 * a2)};
}

// Exponential map: (cos(a / 2), sin(a / 2) v / a) with a = |v|.
template <class T>
NUREC_FN Quat<T> rotvec_to_quat(Vec3<T> v) {
    T const a2 = dot(v, v), s = half_sinc(a2).value;
    T const w = a2 < T(SMALL_ANGLE) ? 1 - a2 / 8 : cos(sqrt(a2) / 2);
    return {w, s * v.x, s * v.y, s * v.z};
}

// d cos(a / 2) / dv = -sin(a / 2) v / (2 a); d(s v) = s dv + 2 s' (v . dv) v with s' by a^2.
template <class T>
NUREC_FN Vec3<T> rotvec_to_quat_backward(Vec3<T> v, Quat<T> d) {
    Sinc<T> const s = half_sinc(dot(v, v));
    Vec3<T> const du = {d.x, d.y, d.z};
    return s.value * du + (2 * s.slope * dot(du, v) - s.value * d.w / 2) * v;
}

// 2 atan2(|u|, w) / |u| of a quaternion (w, u) with w >= 0, and its derivatives by |u|^2 and by w.
template <class T>
struct Logarithm {
    T value, by_u2, by_w;
};

template <class T>
NUREC_FN Logarithm<T> logarithm(T u2, T w) {
    T const by_w = -2 / (u2 + w * w);
    if (u2 < T(SMALL_ANGLE)) return {(2 - u2 * (T(2) / 3)) / w, T(-2) / (3 * w * w * w), by_w};
    T const u = sqrt(u2), value = 2 * atan2(u, w) / u;
    return {value, -(w * by_w + value) / (2 * u2), by_w};
}

// Rotation vector of length at most pi; q and -q give the same (the shorter) one.
template <class T>
NUREC_FN Vec3<T> quat_to_rotvec(Quat<T> q) {
    T const sign = q.w < 0 ? T(-1) : T(1);
    Vec3<T> const u = {sign * q.x, sign * q.y, sign * q.z};
    return logarithm(dot(u, u), sign * q.w).value * u;
}

template <class T>
NUREC_FN Quat<T> quat_to_rotvec_backward(Quat<T> q, Vec3<T> d) {
    T const sign = q.w < 0 ? T(-1) : T(1);
    Vec3<T> const u = {sign * q.x, sign * q.y, sign * q.z};
    Logarithm<T> const f = logarithm(dot(u, u), sign * q.w);
    Vec3<T> const du = sign * (f.value * d + (2 * f.by_u2 * dot(u, d)) * u);
    return {sign * f.by_w * dot(u, d), du.x, du.y, du.z};
}

// Constant-speed rotation along the shorter arc, q0 exp(fraction log(q0^-1 q1)) (Shoemake 1985).
template <class T>
NUREC_FN Quat<T> slerp(Quat<T> q0, Quat<T> q1, T fraction) {
    Vec3<T> const turn = quat_to_rotvec(quat_multiply(quat_conjugate(q0), q1));
    return quat_multiply(q0, rotvec_to_quat(fraction * turn));
}

template <class T>
NUREC_FN QuatPair<T> slerp_backward(Quat<T> q0, Quat<T> q1, T fraction, Quat<T> d) {
    Quat<T> const inverse = quat_conjugate(q0), between = quat_multiply(inverse, q1);
    Vec3<T> const turn = fraction * quat_to_rotvec(between);
    QuatPair<T> const outer = quat_multiply_backward(q0, rotvec_to_quat(turn), d);
    Vec3<T> const d_turn = fraction * rotvec_to_quat_backward(turn, outer.b);
    QuatPair<T> const inner = quat_multiply_backward(inverse, q1, quat_to_rotvec_backward(between, d_turn));
    return {outer.a + quat_conjugate(inner.a), inner.b};
}

template <class T>
NUREC_FN Vec3<T> lerp(Vec3<T> a, Vec3<T> b, T fraction) {
    return a + fraction * (b - a);
}

template <class T>
struct Pose {
    Quat<T> q;  // unit
    Vec3<T> t;  // metres
};

template <class T>
struct PosePair {
    Pose<T> a, b;
};

// Outside 0..1 the motion goes on at constant velocity.
template <class T>
NUREC_FN Pose<T> interpolate_between(Pose<T> a, Pose<T> b, T fraction) {
    return {slerp(a.q, b.q, fraction), lerp(a.t, b.t, fraction)};
}

// From dL/d(pose), as numbers of its quaternion and translation.
template <class T>
NUREC_FN PosePair<T> interpolate_between_backward(Pose<T> a, Pose<T> b, T fraction, Pose<T> d) {
    QuatPair<T> const q = slerp_backward(a.q, b.q, fraction, d.q);
    return {{q.a, (1 - fraction) * d.t}, {q.b, fraction * d.t}};
}

}  // namespace nurec
