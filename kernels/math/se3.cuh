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

}  // namespace nurec
