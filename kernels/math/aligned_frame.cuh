// SPDX-License-Identifier: Apache-2.0
// A Gaussian in a frame that is rotated once a view, so that most products of the response vanish for all its rays.
//
// D2 and t do not change when g and e are turned together (gaussian.cuh), so Q M may stand for M. Q's first axis points
// along the g of a ray from the middle of the view, its second to where g drifts. Rays of a sensor that moves at
// constant speed (rays.cuh) then have, dt seconds after the middle,
//     g = (g0 + dt g1, dt g2, 0)      e = M d      t = -(g . e) / |e|^2 u      p = g + t e / u
//     c = g_x e_y - g_y e_x      |g x e|^2 = e_z^2 |g|^2 + c^2
//     p = (e_y c + g_x e_z^2, g_y e_z^2 - e_x c, -(g . e) e_z) / |e|^2
// g is kept times 1 / u = sqrt(k log2(e) / 2), so that alpha = min(0.99, 2^(log2(o) - |g x e|^2 / |e|^2)). Only
// c cancels, by the motion of the sensor alone. A ray takes 27 operations, without motion 16, where
// gaussian.cuh takes 37 and 34.
#pragma once

#include "moments.cuh"
#include "rays.cuh"

namespace nurec {

constexpr double LN2 = 0.69314718055994531;
constexpr float SHORT = 1e-6f;  // length across an axis; less leaves its direction undefined

template <class T, bool MOVING>
struct Drift {
    T x, y;  // of g, for a second
};

template <class T>
struct Drift<T, false> {};

template <class T, bool MOVING>
struct AlignedFrame : Drift<T, MOVING> {
    Mat3<T> M;
    T g;  // times 1 / unit, as the drift
    T unit;
    T log_opacity;  // of base 2
};

template <class T>
struct Alignment {
    Mat3<T> Q;
    T unit;
};

// The frame relative to the sensor in mid-view, and its drift in its own axes.
template <class T>
NUREC_FN Frame<T> relative_to_sensor(Trajectory<T> const& path, Frame<T> const& f) {
    Vec3<T> const middle = T(0.5) * (path.start + path.end);
    T const pace = path.seconds > 0 ? 1 / path.seconds : T(0);
    return {f.M, f.g + f.M * middle, f.drift + f.M * (pace * (path.end - path.start)), f.k};
}

// The direction of `a` across the unit vector x. Of an `a` that almost lies along x the first difference is mostly
// rounding, which may lie along x, too; the second takes that away.
template <class T>
NUREC_FN Vec3<T> across(Vec3<T> x, Vec3<T> a) {
    for (int pass = 0; pass < 2; ++pass) {
        a = a - dot(x, a) * x;
        a = (1 / sqrt(dot(a, a))) * a;
    }
    return a;
}

template <class T>
NUREC_FN Alignment<T> alignment_of(Frame<T> const& seen) {
    T const length = sqrt(dot(seen.g, seen.g));
    Vec3<T> const x = length > T(1e-30) ? (1 / length) * seen.g : Vec3<T>{1, 0, 0};
    Vec3<T> const aside = cross(x, seen.drift);
    bool const drifts = dot(aside, aside) > T(SHORT) * T(SHORT) * dot(seen.drift, seen.drift);
    bool const level = x.x * x.x < T(0.5);
    Vec3<T> const y = across(x, drifts ? seen.drift : Vec3<T>{T(level), T(!level), 0});
    return {{x, y, cross(x, y)}, 1 / sqrt(seen.k * T(0.5 / LN2))};
}

template <bool MOVING, class T>
NUREC_FN AlignedFrame<T, MOVING> align(Alignment<T> const& turn, Frame<T> const& seen, T opacity) {
    T const scale = 1 / turn.unit;
    AlignedFrame<T, MOVING> f;
    f.M = turn.Q * seen.M, f.g = scale * dot(turn.Q.r0, seen.g), f.unit = turn.unit, f.log_opacity = log2(opacity);
    if constexpr (MOVING) f.x = scale * dot(turn.Q.r0, seen.drift), f.y = scale * dot(turn.Q.r1, seen.drift);
    return f;
}

template <class T>
struct AlignedResponse {  // a ray passes a Gaussian
    Vec3<T> e;
    Vec2<T> g;
    T inverse;  // 1 / |e|^2
    T peak;     // alpha before it is clamped
    T alpha;
    T t;  // metres
};

template <class T, bool MOVING>
NUREC_FN Vec2<T> drifted(AlignedFrame<T, MOVING> const& f, T dt) {
    if constexpr (MOVING) return {f.g + dt * f.x, dt * f.y};
    return {f.g, 0};
}

template <class T, bool MOVING>
NUREC_FN AlignedResponse<T> evaluate(AlignedFrame<T, MOVING> const& f, Vec3<T> d, T dt) {
    Vec3<T> const e = f.M * d;
    Vec2<T> const g = drifted(f, dt);
    T const yz = e.y * e.y + e.z * e.z, inverse = 1 / (e.x * e.x + yz);
    T const c = g.x * e.y - g.y * e.x;
    T const square = MOVING ? e.z * e.z * (g.x * g.x + g.y * g.y) + c * c : g.x * (g.x * yz);
    T const ge = MOVING ? g.x * e.x + g.y * e.y : g.x * e.x, peak = exp2(f.log_opacity - square * inverse);
    return {e, g, inverse, peak, smaller(T(ALPHA_MAX), peak), -ge * inverse * f.unit};
}

// p, from where it does not cancel.
template <bool MOVING, class T>
NUREC_FN Vec3<T> closest_point(Vec2<T> g, Vec3<T> e, T inverse) {
    T const zz = e.z * e.z;
    if (!MOVING) {
        T const t = -g.x * e.x * inverse;
        return {g.x * (e.y * e.y + zz) * inverse, t * e.y, t * e.z};
    }
    T const c = (g.x * e.y - g.y * e.x) * inverse, z = zz * inverse, t = -(g.x * e.x + g.y * e.y) * inverse;
    return {e.y * c + g.x * z, g.y * z - e.x * c, t * e.z};
}

// The result of ray_moments for a Frame, with p, and so w, in units of the aligned frame. `d_peak` is dL/d(peak) peak;
// the gradient of the opacity is the sum of these divided by the opacity.
template <bool MOVING, bool DISTANCE, class T>
NUREC_FN RayMoments<T> aligned_ray_moments(Vec2<T> g, Vec3<T> e, T inverse, T unit, T d_peak, T d_t) {
    Vec3<T> const p = closest_point<MOVING>(g, e, inverse), hp = (T(-2 * LN2) * d_peak) * p;
    if (!DISTANCE) return {p, hp, {0, 0, 0}, d_peak};
    T const c = d_t * inverse * unit;
    return {p, hp - c * e, -c * p, d_peak};
}

// Back to the axes and units before the rotation: Q^T A Q of a symmetric matrix, Q^T a of a vector.
template <class T>
NUREC_FN Moments<T> unalign(Alignment<T> const& turn, T opacity, Moments<T> const& m) {
    Mat3<T> const A = {{m.xx, m.xy, m.xz}, {m.xy, m.yy, m.yz}, {m.xz, m.yz, m.zz}};
    Mat3<T> const B = transposed(turn.Q) * (A * turn.Q);
    T const scale = 1 / turn.unit;
    return {B.r0.x,
            B.r0.y,
            B.r0.z,
            B.r1.y,
            B.r1.z,
            B.r2.z,
            scale * transposed_times(turn.Q, m.g),
            scale * transposed_times(turn.Q, m.drift),
            opacity > 0 ? m.opacity / opacity : T(0)};
}

}  // namespace nurec
