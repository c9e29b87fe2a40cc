// SPDX-License-Identifier: Apache-2.0
// Directions of view to Gaussians; local_directions of nurec_lite/splat/render.py is the specification.
#pragma once

#include "se3.cuh"

namespace nurec {

constexpr double MIN_EYE_DISTANCE = 1e-12;  // metres: smaller distances are divided by this

// Unit vector from the eye to a mean at `r` from it.
template <class T>
NUREC_FN Vec3<T> view_direction(Vec3<T> r) {
    return (1 / larger(sqrt(dot(r, r)), T(MIN_EYE_DISTANCE))) * r;
}

// (d - u (u . d)) / |r|.
template <class T>
NUREC_FN Vec3<T> view_direction_backward(Vec3<T> r, Vec3<T> d) {
    T const length = sqrt(dot(r, r)), k = 1 / larger(length, T(MIN_EYE_DISTANCE));
    if (length < T(MIN_EYE_DISTANCE)) return k * d;
    return k * d - (k * k * k * dot(r, d)) * r;
}

// The same in the axes of a node that is turned by q.
template <class T>
NUREC_FN Vec3<T> local_view_direction(Quat<T> q, Vec3<T> r) {
    return quat_rotate(quat_conjugate(q), view_direction(r));
}

// dL/dq and dL/dr.
template <class T>
NUREC_FN RotateGrad<T> local_view_direction_backward(Quat<T> q, Vec3<T> r, Vec3<T> d) {
    RotateGrad<T> const g = quat_rotate_backward(quat_conjugate(q), view_direction(r), d);
    return {quat_conjugate(g.q), view_direction_backward(r, g.v)};
}

}  // namespace nurec
