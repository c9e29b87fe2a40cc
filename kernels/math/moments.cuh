// SPDX-License-Identifier: Apache-2.0
// A Gaussian's gradient, summed over rays as moments in its own frame: fewer numbers than the gradient of its `Frame`.
//
// D2 and t do not change when g and e are turned together, so the loss depends on M by M^T M alone and dL/dM M^T is
// symmetric: six numbers instead of nine. With p = g + t e = e x (g x e) / |e|^2, where the ray passes the mean,
// h = 2 k dL/d(D2) and c = dL/dt / |e|^2:
//     dL/dg = h p - c e =: w      dL/de = t w - c p      dL/dM M^T = sum of w p^T - c p e^T
// Here dL/dM counts the M in g = M (r - mu - v dt), too, as `make_frame_backward` does.
#pragma once

#include "gaussian.cuh"

namespace nurec {

template <class T>
struct Moments {
    T xx, xy, xz, yy, yz, zz;  // dL/dM M^T
    Vec3<T> g;                 // dL/dg
    Vec3<T> drift;             // dL/d(drift)
    T opacity;
};

// Moments of one ray.
template <class T>
struct RayMoments {
    Vec3<T> p;  // where the ray passes the mean, in units of the scales, times u
    Vec3<T> w;  // dL/dg
    Vec3<T> n;  // -c p: dL/de is t w + n
    T opacity;
};

// DISTANCE: t has a gradient; without, d_t is not used and n is zero.
template <bool DISTANCE, class T>
NUREC_FN RayMoments<T> ray_moments(Frame<T> const& f, T opacity, Response<T> const& at, T d_alpha, T d_t) {
    T const free = opacity * at.falloff <= T(ALPHA_MAX) ? d_alpha : T(0);
    Vec3<T> const p = at.inverse * cross(at.e, cross(at.g, at.e));
    Vec3<T> const hp = (-f.k * free * at.alpha) * p;
    if (!DISTANCE) return {p, hp, {0, 0, 0}, free * at.falloff};
    T const c = d_t * at.inverse;
    return {p, hp - c * at.e, -c * p, free * at.falloff};
}

// MOVING: rays have delays of their own.
template <bool MOVING, bool DISTANCE, class T>
NUREC_FN void add_moments(RayMoments<T> const& a, Vec3<T> e, T dt, Moments<T>& sum) {
    sum.xx += a.w.x * a.p.x, sum.xy += a.w.x * a.p.y, sum.xz += a.w.x * a.p.z;
    sum.yy += a.w.y * a.p.y, sum.yz += a.w.y * a.p.z, sum.zz += a.w.z * a.p.z;
    if (DISTANCE) {
        sum.xx += a.n.x * e.x, sum.xy += a.n.x * e.y, sum.xz += a.n.x * e.z;
        sum.yy += a.n.y * e.y, sum.yz += a.n.y * e.z, sum.zz += a.n.z * e.z;
    }
    sum.g = sum.g + a.w;
    if (MOVING) sum.drift = sum.drift + dt * a.w;
    sum.opacity += a.opacity;
}

// To the Gaussian's parameters. M^-T = S R^T / u, so that row i of dL/d(R^T) is the sum over j of (dL/dM M^T)_ij s_j /
// s_i times row j of R^T, and the scales' gradients are the diagonal.
template <class T>
NUREC_FN GaussianGrad<T> moments_backward(Quat<T> q, Vec3<T> s, Frame<T> const& f, Moments<T> const& m) {
    Mat3<T> const Rt = transposed(quat_to_matrix(q));
    Mat3<T> const SRt = {s.x * Rt.r0, s.y * Rt.r1, s.z * Rt.r2};
    Mat3<T> const dRt = {(1 / s.x) * transposed_times(SRt, Vec3<T>{m.xx, m.xy, m.xz}),
                         (1 / s.y) * transposed_times(SRt, Vec3<T>{m.xy, m.yy, m.yz}),
                         (1 / s.z) * transposed_times(SRt, Vec3<T>{m.xz, m.yz, m.zz})};
    return {T(-1) * transposed_times(f.M, m.g),
            quat_to_matrix_backward(q, transposed(dRt)),
            {-m.xx / s.x, -m.yy / s.y, -m.zz / s.z},
            T(-1) * transposed_times(f.M, m.drift)};
}

}  // namespace nurec
