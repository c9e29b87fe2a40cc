// SPDX-License-Identifier: Apache-2.0
// Rotations as unit quaternions wxyz, and their derivatives; nurec_lite/geometry/se3.py is the specification.
#pragma once

#include "vec.cuh"

namespace nurec {

// R(q) of a unit quaternion. The polynomial is taken as it stands for others, too, as the reference does.
template <class T>
NUREC_FN Mat3<T> quat_to_matrix(Quat<T> q) {
    T const w = q.w, x = q.x, y = q.y, z = q.z;
    return {{1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)},
            {2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)},
            {2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)}};
}

// dL/dq from dL/dR, of the same polynomial.
template <class T>
NUREC_FN Quat<T> quat_to_matrix_backward(Quat<T> q, Mat3<T> const& d) {
    T const w = q.w, x = q.x, y = q.y, z = q.z;
    T const xy = d.r0.y + d.r1.x, xz = d.r0.z + d.r2.x, yz = d.r1.z + d.r2.y;
    T const a = d.r2.y - d.r1.z, b = d.r0.z - d.r2.x, c = d.r1.x - d.r0.y;
    return {2 * (x * a + y * b + z * c), 2 * (w * a + y * xy + z * xz - 2 * x * (d.r1.y + d.r2.z)),
            2 * (w * b + x * xy + z * yz - 2 * y * (d.r0.x + d.r2.z)),
            2 * (w * c + x * xz + y * yz - 2 * z * (d.r0.x + d.r1.y))};
}

template <class T>
NUREC_FN Quat<T> operator+(Quat<T> a, Quat<T> b) {
    return {a.w + b.w, a.x + b.x, a.y + b.y, a.z + b.z};
}

template <class T>
NUREC_FN T length_of(Quat<T> q) {
    return sqrt(q.w * q.w + q.x * q.x + q.y * q.y + q.z * q.z);
}

constexpr double SHORTEST = 1e-12;  // a quaternion that is shorter is divided by this

template <class T>
NUREC_FN Quat<T> normalized(Quat<T> q) {
    T const k = 1 / larger(length_of(q), T(SHORTEST));
    return {k * q.w, k * q.x, k * q.y, k * q.z};
}

// (d - u (u . d)) / |q| with u = q / |q|.
template <class T>
NUREC_FN Quat<T> normalized_backward(Quat<T> q, Quat<T> d) {
    T const length = length_of(q), k = 1 / larger(length, T(SHORTEST));
    T const along = length < T(SHORTEST) ? T(0) : k * k * (q.w * d.w + q.x * d.x + q.y * d.y + q.z * d.z);
    return {k * (d.w - along * q.w), k * (d.x - along * q.x), k * (d.y - along * q.y), k * (d.z - along * q.z)};
}

// The inverse of a unit quaternion.
template <class T>
NUREC_FN Quat<T> quat_conjugate(Quat<T> q) {
    return {q.w, -q.x, -q.y, -q.z};
}

// Hamilton product: rotation b, then a.
template <class T>
NUREC_FN Quat<T> quat_multiply(Quat<T> a, Quat<T> b) {
    return {a.w * b.w - a.x * b.x - a.y * b.y - a.z * b.z, a.w * b.x + a.x * b.w + a.y * b.z - a.z * b.y,
            a.w * b.y - a.x * b.z + a.y * b.w + a.z * b.x, a.w * b.z + a.x * b.y - a.y * b.x + a.z * b.w};
}

template <class T>
struct QuatPair {
    Quat<T> a, b;
};

// a b is linear in either factor, and the transpose of "times b" is "times b's conjugate": dL/da = d b*, dL/db = a* d.
template <class T>
NUREC_FN QuatPair<T> quat_multiply_backward(Quat<T> a, Quat<T> b, Quat<T> d) {
    return {quat_multiply(d, quat_conjugate(b)), quat_multiply(quat_conjugate(a), d)};
}

// R(q) v = v + w t + u x t with q = (w, u) and t = 2 u x v.
template <class T>
NUREC_FN Vec3<T> quat_rotate(Quat<T> q, Vec3<T> v) {
    Vec3<T> const u = {q.x, q.y, q.z}, t = T(2) * cross(u, v);
    return v + (q.w * t + cross(u, t));
}

template <class T>
struct RotateGrad {
    Quat<T> q;
    Vec3<T> v;
};

// dL/dt = w d + d x u; a . (b x c) = b . (c x a) takes it on to u and v.
template <class T>
NUREC_FN RotateGrad<T> quat_rotate_backward(Quat<T> q, Vec3<T> v, Vec3<T> d) {
    Vec3<T> const u = {q.x, q.y, q.z}, t = T(2) * cross(u, v);
    Vec3<T> const dt = q.w * d + cross(d, u);
    Vec3<T> const du = cross(t, d) + T(2) * cross(v, dt);
    return {{dot(d, t), du.x, du.y, du.z}, d + T(2) * cross(dt, u)};
}

}  // namespace nurec
