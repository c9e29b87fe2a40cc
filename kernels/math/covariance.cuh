// SPDX-License-Identifier: Apache-2.0
// Covariance of a Gaussian in world axes, and its derivatives (3DGS, Kerbl et al. 2023, eq. 6).
#pragma once

#include "se3.cuh"

namespace nurec {

// R S: maps a unit sphere to the Gaussian.
template <class T>
NUREC_FN Mat3<T> scaled_axes(Mat3<T> const& R, Vec3<T> s) {
    return {{R.r0.x * s.x, R.r0.y * s.y, R.r0.z * s.z},
            {R.r1.x * s.x, R.r1.y * s.y, R.r1.z * s.z},
            {R.r2.x * s.x, R.r2.y * s.y, R.r2.z * s.z}};
}

// R S S^T R^T
template <class T>
NUREC_FN Mat3<T> covariance(Quat<T> q, Vec3<T> s) {
    Mat3<T> const A = scaled_axes(quat_to_matrix(q), s);
    T const xy = dot(A.r0, A.r1), xz = dot(A.r0, A.r2), yz = dot(A.r1, A.r2);
    return {{dot(A.r0, A.r0), xy, xz}, {xy, dot(A.r1, A.r1), yz}, {xz, yz, dot(A.r2, A.r2)}};
}

template <class T>
struct CovarianceGrad {
    Quat<T> q;
    Vec3<T> s;
};

// With A = R S and D = dL/d(covariance): dL/dA = (D + D^T) A, dL/dR = dL/dA S, dL/ds_k = sum_i (dL/dA)_ik R_ik.
template <class T>
NUREC_FN CovarianceGrad<T> covariance_backward(Quat<T> q, Vec3<T> s, Mat3<T> const& d) {
    Mat3<T> const R = quat_to_matrix(q), A = scaled_axes(R, s), t = transposed(d);
    Mat3<T> const dA = {transposed_times(A, d.r0 + t.r0), transposed_times(A, d.r1 + t.r1),
                        transposed_times(A, d.r2 + t.r2)};
    Mat3<T> const dAt = transposed(dA), Rt = transposed(R);
    return {quat_to_matrix_backward(q, scaled_axes(dA, s)),
            {dot(dAt.r0, Rt.r0), dot(dAt.r1, Rt.r1), dot(dAt.r2, Rt.r2)}};
}

}  // namespace nurec
