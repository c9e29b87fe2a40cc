// SPDX-License-Identifier: Apache-2.0
// A bound on the Gaussians that the rays of a warp tile may hit; lists hold no others.
//
// The rays of a warp tile lie in a pyramid: their directions are multiples of c + x a + y b with |x|, |y| <= 1, their
// delays within `tau` of dt + x w: a lidar moves while it turns. A Gaussian in the
// aligned frame (aligned_frame.cuh) has g = (g0 + delay g1, delay g2, 0) and e(x, y) = M (c + x a + y b): a ray hits it
// if |g x e| <= R |e|, where R^2 = log2(255 o). Squared, both sides are quadratic forms of x and y. Along x, g moves by
// x h, which the left side has as x h x e + h x a / 2; the remaining products of h with a and b are added to the right
// side. The rest of the delays moves g by tau |drift| at most.
#pragma once

#include "aligned_frame.cuh"

namespace nurec {

template <class T>
struct alignas(16) RayPyramid {
    Vec3<T> c, a, b;  // directions
    T dt, w, tau;     // seconds after the middle of the view
    T known;          // 0: it has no ray; 2: it is too wide for a pyramid and may meet anything
    T unused[3];
};
static_assert(sizeof(RayPyramid<float>) == 16 * sizeof(float));

// Rays of a warp tile that lie side by side, as those of a lidar's beam do: x within dx of x, and y within dy of y,
// which is much less.
template <class T>
struct alignas(16) BeamSlab {
    T x, dx, y, dy;  // dx < 0: it has no ray
};
static_assert(sizeof(BeamSlab<float>) == 4 * sizeof(float));

// |p + x u + y v|^2 = xx x^2 + 2 xy x y + yy y^2 + 2 x x + 2 y y + one
template <class T>
struct Form {
    T xx, xy, yy, x, y, one;

    NUREC_FN T at(T v) const { return one + v * (2 * y + v * yy); }  // with x = 0
    NUREC_FN T slope(T v) const { return x + v * xy; }
    NUREC_FN T sum() const { return one + xx + yy; }  // at least a third of the sum of magnitudes
};

template <class T>
NUREC_FN Form<T> form_of(Vec3<T> p, Vec3<T> u, Vec3<T> v) {
    return {dot(u, u), dot(u, v), dot(v, v), dot(p, u), dot(p, v), dot(p, p)};
}

// A Gaussian and a warp tile. Rays (x, y), or others within dy of their y, may meet it if D^(1/2) <= R E^(1/2) + s,
// where s = beside + dy spread; so does D <= (1 + s / r) R^2 E + s (s + r) for any r: here R E^(1/2) on average.
template <class T>
struct GroupTest {
    Form<T> D, E;
    T beside, spread, r, square, share;  // R^2, and R^2 / r
    T ahead;                             // < 0: it is behind all of them
};

constexpr double LOG2_255 = 7.9943534368588578;

// (g, 0) x e
template <class T>
NUREC_FN Vec3<T> level_cross(Vec2<T> g, Vec3<T> e) {
    return {g.y * e.z, -g.x * e.z, g.x * e.y - g.y * e.x};
}

template <class T>
NUREC_FN GroupTest<T> group_test(AlignedFrame<T, true> const& f, RayPyramid<T> const& rays) {
    Vec2<T> const g = drifted(f, rays.dt), drift = {f.x, f.y}, h = {rays.w * f.x, rays.w * f.y};
    Vec3<T> const e = f.M * rays.c, a = f.M * rays.a, b = f.M * rays.b, ha = level_cross(h, a), hb = level_cross(h, b);
    Vec3<T> const middle = level_cross(g, e) + T(0.5) * ha;  // x^2 is 1/2 or nearly
    Form<T> const E = form_of(e, a, b), D = form_of(middle, level_cross(g, a) + level_cross(h, e), level_cross(g, b));
    T const slack = rays.tau * sqrt(dot(drift, drift)) + T(2e-6) * sqrt(dot(g, g));  // the second term covers rounding
    T const least = larger(f.log_opacity + T(LOG2_255), T(0)) + T(4e-6), R = sqrt(least) + slack;
    T const wide = sqrt(E.xx), high = sqrt(E.yy), along = sqrt(dot(h, h));
    T const ahead = -dot(g, {e.x, e.y}) + fabs(dot(g, {a.x, a.y})) + fabs(dot(g, {b.x, b.y})) +
                    (slack + along) * (sqrt(E.one) + wide + high);
    T const r = R * sqrt(E.one + T(1. / 3) * (E.xx + E.yy)) + T(1e-30), square = T(1.002) * R * R;
    T const beside = T(0.5) * sqrt(dot(ha, ha)) + sqrt(dot(hb, hb));
    return {D, E, beside, sqrt(D.yy) + R * high, r, square, square / r, ahead};
}

// The least of level + 2 slope x + bend x^2 over |x - at| <= dx: where the parabola opens downwards, at its lower end.
template <class T>
NUREC_FN T least_on_line(T level, T slope, T bend, T at, T dx) {
    T const end = slope + bend * at > 0 ? at - dx : at + dx;
    T const x = bend > 0 ? larger(at - dx, smaller(at + dx, -slope / bend)) : end;
    return level + x * (2 * slope + x * bend);
}

// May some ray of the slab?
template <class T>
NUREC_FN bool may_hit(GroupTest<T> const& f, BeamSlab<T> const& slab) {
    if (slab.dx < 0) return false;
    T const s = f.beside + slab.dy * f.spread, K = f.square + s * f.share;
    T const rounding = T(2e-6) * (f.D.sum() + K * f.E.sum());
    T const level = f.D.at(slab.y) - K * f.E.at(slab.y), slope = f.D.slope(slab.y) - K * f.E.slope(slab.y);
    T const least = least_on_line(level, slope, f.D.xx - K * f.E.xx, slab.x, slab.dx);
    return !(least > s * (s + f.r) + rounding);
}

}  // namespace nurec
