// SPDX-License-Identifier: Apache-2.0
// The rays of an image that may meet a Gaussian which reaches the camera's own plane: no ellipse (outline.cuh), but
//     q = |g x e|^2 - K |e|^2 <= 0
// is a quadratic form of two coordinates of pixels all the same, with e = e_0 + x e_x + y e_y along pixels. Of a row of
// pixels the rays lie in an interval, or in two on either side of it; one of the two is behind the camera.
#pragma once

#include "outline.cuh"

namespace nurec {

template <class T>
struct Conic {
    T xx, xy, yy, x, y, one;    // q = xx x^2 + 2 xy x y + yy y^2 + 2 x x + 2 y y + one
    T ahead, ahead_x, ahead_y;  // points behind the camera have ahead + ahead_x x + ahead_y y < 0
};

// Motion, over the view in the sensor's frame, of a point with velocity v past a sensor; the sensor's rotation is left
// out.
template <class T>
NUREC_FN Vec3<T> moves_past(Motion<T> const& motion, Vec3<T> v, T fraction) {
    Vec3<T> const way = transposed_times(motion.R0, motion.t0) - transposed_times(motion.R1, motion.t1);
    return motion.of_direction(motion.seconds * v - way).at(fraction);
}

// Pixels from `corner` on, of `size` at most; rays that are read between two fractions of the view. Lenses with
// distortion are not known here. |g x e|^2 is a small difference of large squares where a Gaussian is thin and far for
// its thickness, as on a road: T should be double.
template <class T>
NUREC_FN Conic<T> conic_of(View<T> const& view, Vec3<T> mean, Quat<T> q, Vec3<T> s, Vec3<T> v, T reach, Vec2<T> corner,
                           Vec2<T> size, Interval<T> when) {
    CameraModel<T> const& camera = view.camera;
    T const f = T(0.5) * (when.low + when.high), late = T(0.5) * (when.high - when.low);
    GaussianInSensor<T> const in_sensor = gaussian_in_sensor_at(view.motion, moving(view.motion, mean, v), q, f);
    T const u = smaller(s.x, smaller(s.y, s.z));
    Mat3<T> const M = {(u / s.x) * in_sensor.axes.r0, (u / s.y) * in_sensor.axes.r1, (u / s.z) * in_sensor.axes.r2};
    Vec3<T> const g = T(-1) * (M * in_sensor.c);
    Vec3<T> const d = {(corner.x - camera.cx) / camera.fx, (corner.y - camera.cy) / camera.fy, T(1)};
    Vec3<T> const e = M * d, ex = (1 / camera.fx) * (M * Vec3<T>{1, 0, 0}),
                  ey = (1 / camera.fy) * (M * Vec3<T>{0, 1, 0});
    // lengths at most: of g, of e, of d
    T const far = sqrt(dot(g, g)), most = sqrt(dot(e, e)) + size.x * sqrt(dot(ex, ex)) + size.y * sqrt(dot(ey, ey));
    T const wide = sqrt(dot(d, d)) + size.x / camera.fx + size.y / camera.fy;
    Vec3<T> const passed = M * moves_past(view.motion, v, f);
    T const moved = late * sqrt(dot(passed, passed)) + T(2e-6) * far;
    T const R = T(1.001) * reach * u + moved, turned = (late + T(0.125) * view.turning) * view.turning * wide;
    // |g x e| <= R |e| + beside, squared with an r of its own (ray_pyramid.cuh)
    T const beside = (far + R) * turned, r = R * most + T(1e-30), K = R * R * (1 + beside / r);
    Vec3<T> const p = cross(g, e), px = cross(g, ex), py = cross(g, ey);
    T const rounding = (sizeof(T) == sizeof(float) ? T(6e-7) : T(1e-14)) * far * far * most * most;
    return {dot(px, px) - K * dot(ex, ex),
            dot(px, py) - K * dot(ex, ey),
            dot(py, py) - K * dot(ey, ey),
            dot(p, px) - K * dot(e, ex),
            dot(p, py) - K * dot(e, ey),
            dot(p, p) - K * dot(e, e) - beside * (beside + r) - rounding,
            (moved + far * turned) * most - dot(g, e),
            -dot(g, ex),
            -dot(g, ey)};
}

// Interval between the roots of a x^2 + 2 b x + c; none: high < low.
template <class T>
NUREC_FN Interval<T> roots(T a, T b, T c) {
    T const square = b * b - a * c;
    if (!(square >= 0)) return {1, -1};
    // not from a difference of two that are nearly the same
    T const sum = -(b + (b < 0 ? -sqrt(square) : sqrt(square)));
    T const one = sum / a, two = sum != 0 ? c / sum : one;
    return {smaller(one, two), larger(one, two)};
}

template <class T>
NUREC_FN Interval<T> joined(Interval<T> a, Interval<T> b) {
    if (a.low > a.high) return b;
    if (b.low > b.high) return a;
    return {smaller(a.low, b.low), larger(a.high, b.high)};
}

// Above a place x the least of q is at a y of its own: of all these places, where it is 0.
template <class T>
NUREC_FN Interval<T> farthest(Conic<T> const& q) {
    return roots(q.xx - q.xy * q.xy / q.yy, q.x - q.xy * q.y / q.yy, q.one - q.y * q.y / q.yy);
}

// The places x where that y lies between two rows.
template <class T>
NUREC_FN Interval<T> least_within(Conic<T> const& q, T y0, T y1) {
    T const slope = -q.xy / q.yy, at = -q.y / q.yy, margin = T(1e-3) * (1 + fabs(at)), low = y0 - margin,
            high = y1 + margin;
    T const one = (low - at) / slope, two = (high - at) / slope, far = T(1e30);
    if (fabs(slope) > 1 / far) return {smaller(one, two), larger(one, two)};
    return at >= low && at <= high ? Interval<T>{-far, far} : Interval<T>{1, -1};
}

// Columns of a conic with bounded rows, such as an ellipse: those of the first row and the last, and the points
// between that reach farther.
template <class T>
NUREC_FN Interval<T> inside(Conic<T> const& q, Interval<T> first, Interval<T> last, T y0, T y1) {
    Interval<T> all = joined(first, last);
    if (!(q.yy > 0)) return all;
    Interval<T> const ends = farthest(q), there = least_within(q, y0, y1);
    bool const any = ends.low <= ends.high;
    if (any && ends.low >= there.low && ends.low <= there.high) all = joined(all, {ends.low, ends.low});
    if (any && ends.high >= there.low && ends.high <= there.high) all = joined(all, {ends.high, ends.high});
    return all;
}

// Columns that no row reaches, or some of them, for a conic with rows that are unbounded on both sides.
template <class T>
NUREC_FN Interval<T> gap_of(Conic<T> const& q, Interval<T> first, Interval<T> last, T y0, T y1) {
    if (first.low > first.high || last.low > last.high) return {1, 0};
    Interval<T> gap = {larger(first.low, last.low), smaller(first.high, last.high)};
    if (!(q.yy > 0)) return gap;
    Interval<T> const ends = farthest(q), there = least_within(q, y0, y1);
    if (there.low > there.high || there.low > gap.high || there.high < gap.low) return gap;
    if (ends.low <= ends.high) {  // between them it is not reached
        if (there.low < ends.low) gap.low = larger(gap.low, smaller(ends.low, there.high));
        if (there.high > ends.high) gap.high = smaller(gap.high, larger(ends.high, there.low));
        return gap;
    }
    bool const left = there.low - gap.low > gap.high - there.high;
    return left ? Interval<T>{gap.low, there.low} : Interval<T>{there.high, gap.high};
}

// Columns that the conic may reach in the rows from y0 to y1, of all columns from 0 to `end`.
template <class T>
NUREC_FN Interval<T> columns_within(Conic<T> const& q, T y0, T y1, T end) {
    auto const on_row = [&](T y) { return roots(q.xx, q.xy * y + q.x, (q.yy * y + 2 * q.y) * y + q.one); };
    Interval<T> const first = on_row(y0), last = on_row(y1);
    T const start = q.ahead + larger(q.ahead_y * y0, q.ahead_y * y1);
    Interval<T> front = {0, end};  // not behind the camera
    if (q.ahead_x > 0) front.low = larger(front.low, -start / q.ahead_x);
    if (q.ahead_x < 0) front.high = smaller(front.high, -start / q.ahead_x);
    if (q.ahead_x == 0 && start < 0) return {1, 0};
    if (q.xx > 0) {
        Interval<T> const all = inside(q, first, last, y0, y1);
        if (all.low > all.high) return {1, 0};
        return {larger(front.low, all.low), smaller(front.high, all.high)};
    }
    Interval<T> const gap = q.xx < 0 ? gap_of(q, first, last, y0, y1) : Interval<T>{1, 0};
    if (!(gap.low < gap.high)) return front;
    if (front.low > gap.low) front.low = larger(front.low, gap.high);
    if (front.high < gap.high) front.high = smaller(front.high, gap.low);
    return front;
}

}  // namespace nurec
