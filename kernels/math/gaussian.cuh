// SPDX-License-Identifier: Apache-2.0
// A Gaussian along a ray (3DGUT, Wu et al. 2025), and its derivatives.
//
// With M = S^-1 R^T, g = M (r + v' - mu), e = M d, where v' = -v dt carries a Gaussian that moves with velocity v to
// the ray's time:
//     D2 = |g x e|^2 / |e|^2      alpha = min(0.99, o exp(-D2 / 2))      t = -(g . e) / (e . e)
// M is kept times the smallest scale u, so that float holds tiny and huge scales: D2 = k |g x e|^2 / |e|^2 with k = 1 /
// u^2. Neither D2 nor t depends on u, so u carries no gradient.
#pragma once

#include "se3.cuh"

namespace nurec {

constexpr float NEAR = 0.2f;  // metres
constexpr float ALPHA_MIN = 1.f / 255.f;
constexpr float ALPHA_MAX = 0.99f;

// Values of a Gaussian that rays need. Positions are relative to the centre of the ray origins.
template <class T>
struct Frame {
    Mat3<T> M;      // u S^-1 R^T
    Vec3<T> g;      // -M mu: of a ray from the centre at the Gaussian's time
    Vec3<T> drift;  // -M v, for a second
    T k;            // 1 / u^2
};

template <class T>
struct Ray {
    Vec3<T> d;  // unit
    Vec3<T> r;  // origin
    T dt;       // seconds after the Gaussian's time
};

template <class T>
NUREC_FN Frame<T> make_frame(Vec3<T> mean, Quat<T> q, Vec3<T> s, Vec3<T> v) {
    T const u = smaller(s.x, smaller(s.y, s.z));
    Mat3<T> const Rt = transposed(quat_to_matrix(q));
    Mat3<T> const M = {(u / s.x) * Rt.r0, (u / s.y) * Rt.r1, (u / s.z) * Rt.r2};
    return {M, T(-1) * (M * mean), T(-1) * (M * v), 1 / (u * u)};
}

template <class T>
struct GaussianGrad {
    Vec3<T> mean;
    Quat<T> q;
    Vec3<T> s;
    Vec3<T> v;
};

// From dL/dM, dL/dg and dL/d(drift), which rays have added up (`d.k` is not used).
template <class T>
NUREC_FN GaussianGrad<T> make_frame_backward(Vec3<T> mean, Quat<T> q, Vec3<T> s, Vec3<T> v, Frame<T> const& f,
                                             Frame<T> const& d) {
    T const u = smaller(s.x, smaller(s.y, s.z));
    Mat3<T> const dM = {d.M.r0 - (d.g.x * mean + d.drift.x * v), d.M.r1 - (d.g.y * mean + d.drift.y * v),
                        d.M.r2 - (d.g.z * mean + d.drift.z * v)};
    Mat3<T> const dRt = {(u / s.x) * dM.r0, (u / s.y) * dM.r1, (u / s.z) * dM.r2};
    Vec3<T> const ds = {-dot(dM.r0, f.M.r0) / s.x, -dot(dM.r1, f.M.r1) / s.y, -dot(dM.r2, f.M.r2) / s.z};
    return {T(-1) * transposed_times(f.M, d.g), quat_to_matrix_backward(q, transposed(dRt)), ds,
            T(-1) * transposed_times(f.M, d.drift)};
}

template <class T>
struct Response {
    Vec3<T> g, e;
    T inverse;  // 1 / |e|^2
    T D2;
    T falloff;  // exp(-D2 / 2)
    T alpha;
    T t;  // metres
};

// Response of a Gaussian to a ray without the opacity, which is 0. MOVING: rays have origins or delays of their own.
template <bool MOVING, class T>
NUREC_FN Response<T> approach(Frame<T> const& f, Ray<T> const& ray) {
    Vec3<T> const shift = MOVING ? f.M * ray.r + ray.dt * f.drift : Vec3<T>{0, 0, 0};
    Vec3<T> const g = f.g + shift, e = f.M * ray.d, c = cross(g, e);
    T const inverse = 1 / dot(e, e);
    return {g, e, inverse, f.k * dot(c, c) * inverse, T(0), T(0), -dot(g, e) * inverse};
}

template <bool MOVING, class T>
NUREC_FN Response<T> respond(Frame<T> const& f, T opacity, Ray<T> const& ray) {
    Response<T> at = approach<MOVING>(f, ray);
    at.falloff = exp(T(-0.5) * at.D2);
    at.alpha = smaller(T(ALPHA_MAX), opacity * at.falloff);
    return at;
}

// dL/dg and dL/de of one ray; the opacity's own gradient is dL/d(alpha) falloff where alpha is not clamped.
template <class T>
struct ResponseGrad {
    Vec3<T> g, e;
    T opacity;
};

template <class T>
NUREC_FN ResponseGrad<T> respond_backward(Frame<T> const& f, T opacity, Response<T> const& at, T d_alpha, T d_t) {
    T const free = opacity * at.falloff <= T(ALPHA_MAX) ? d_alpha : T(0);
    T const d_D2 = T(-0.5) * free * at.alpha;
    Vec3<T> const dc = (2 * d_D2 * f.k * at.inverse) * cross(at.g, at.e);
    T const d_ee = -(d_D2 * at.D2 + d_t * at.t) * at.inverse;
    T const d_ge = -d_t * at.inverse;
    return {cross(at.e, dc) + d_ge * at.e, cross(dc, at.g) + (d_ge * at.g + 2 * d_ee * at.e), free * at.falloff};
}

}  // namespace nurec
