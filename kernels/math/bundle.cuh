// SPDX-License-Identifier: Apache-2.0
// Which Gaussians a bundle of neighbouring rays may meet: a bound, for lists that hold no others.
//
// The rays of a bundle lie in a pyramid: their directions are multiples of c + x a + y b with |x|, |y| <= 1, their
// origins within `rho` of r + x o, their delays within `tau` of dt + x w: a lidar moves while it turns. With g = M (r -
// mu) and e(x, y) = M (c + x a + y b), a ray meets the Gaussian if |g x e| <= R |e|, where R is the reach in units of
// M. On the left stands a distance in the plane across g, linear in x and y: its least value over the square has a
// closed form. On the right |e| is convex, so that a corner has its greatest. Along x, g moves by x h, which the left
// side has as x h x e, but for what h has to do with a and b; what is left of origins and delays moves g by rho + tau
// |drift| at most, because no row of M is longer than 1.
#pragma once

#include "gaussian.cuh"

namespace nurec {

template <class T>
struct alignas(16) Bundle {
    Vec3<T> c, a, b;  // directions
    Vec3<T> r;        // metres, relative to the centre of the view
    T rho;            // metres
    T dt, tau;        // seconds
    T known;          // 0: it has no ray; 2: it is too wide for a pyramid and may meet anything
    Vec3<T> o;        // metres
    T w;              // seconds
};
static_assert(sizeof(Bundle<float>) == 20 * sizeof(float));

// The least |p + x u + y v|^2 over |x|, |y| <= 1 for u, v and p in one plane: 0 within, else on one of the edges. Where
// they are not quite in one, it may be less than that.
template <class T>
NUREC_FN T least_square(Vec3<T> p, Vec3<T> u, Vec3<T> v) {
    T const pu = dot(p, u), pv = dot(p, v), uu = dot(u, u), vv = dot(v, v), uv = dot(u, v);
    T const tiny = T(1e-30), det = uu * vv - uv * uv;
    T const x = pv * uv - pu * vv, y = pu * uv - pv * uu;  // times 1 / det: where the distance is 0
    if (fabs(x) <= det && fabs(y) <= det) return T(0);
    T best = T(1e30);
    for (int side = -1; side <= 1; side += 2) {
        T const s = T(side);
        T const along_v = larger(T(-1), smaller(T(1), -(pv + s * uv) / (vv + tiny)));
        Vec3<T> const on_u = p + s * u + along_v * v;
        T const along_u = larger(T(-1), smaller(T(1), -(pu + s * uv) / (uu + tiny)));
        Vec3<T> const on_v = p + s * v + along_u * u;
        best = smaller(best, smaller(dot(on_u, on_u), dot(on_v, on_v)));
    }
    return best;
}

// A Gaussian as bundles see it.
template <class T>
struct alignas(16) Seen {
    Mat3<T> M;  // as Frame has them
    Vec3<T> g, drift;
    T reach;  // in units of M
};
static_assert(sizeof(Seen<float>) == 16 * sizeof(float));

template <class T>
NUREC_FN Seen<T> seen_within(Frame<T> const& f, T reach) {  // `reach` standard deviations
    return {f.M, f.g, f.drift, reach / sqrt(f.k)};
}

// The same from the origin of a bundle. A ray (x, y) meets it if |p + x u + y v| <= R |e + x a + y b| + beside.
template <class T>
struct Facing {
    Vec3<T> e, a, b, p, u, v;
    T R, beside;
    T ahead;    // < 0: it is behind all of them
    T longest;  // |e + x a + y b| at most
};

template <class T>
NUREC_FN Facing<T> facing(Seen<T> const& f, Bundle<T> const& rays) {
    Vec3<T> const g = f.g + f.M * rays.r + rays.dt * f.drift;
    Vec3<T> const e = f.M * rays.c, a = f.M * rays.a, b = f.M * rays.b;
    Vec3<T> const s = a + b, d = a - b;
    T const longest =
        sqrt(larger(larger(dot(e + s, e + s), dot(e - s, e - s)), larger(dot(e + d, e + d), dot(e - d, e - d))));
    T const moved = rays.rho + rays.tau * sqrt(dot(f.drift, f.drift));
    T const slack = moved + T(2e-6) * sqrt(dot(g, g));  // what rounding does
    Vec3<T> const h = f.M * rays.o + rays.w * f.drift;
    T const along = sqrt(dot(h, h)), beside = along * (sqrt(dot(a, a)) + sqrt(dot(b, b)));
    T const ahead = -dot(g, e) + fabs(dot(g, a)) + fabs(dot(g, b)) + (slack + along) * longest;
    return {e, a, b, cross(g, e), cross(g, a) + cross(h, e), cross(g, b), f.reach + slack, beside, ahead, longest};
}

// May some ray of the bundle see the Gaussian?
template <class T>
NUREC_FN bool meets(Facing<T> const& f) {
    T const most = f.R * f.longest + f.beside;
    return !(f.ahead < 0) && !(least_square(f.p, f.u, f.v) > T(1.002) * most * most);
}

// Rays of a bundle that lie side by side, as those of a lidar's beam do: x within dx of x, and y within dy of y, which
// is much less.
template <class T>
struct alignas(16) Fan {
    T x, dx, y, dy;  // dx < 0: it has no ray
};
static_assert(sizeof(Fan<float>) == 4 * sizeof(float));

// The least over |x| <= 1 of |p + x u|^2 - k |e + x a|^2, a parabola: where it opens downwards, at its lower end.
template <class T>
NUREC_FN T least_on_line(Vec3<T> p, Vec3<T> u, Vec3<T> e, Vec3<T> a, T k) {
    T const slope = dot(p, u) - k * dot(e, a), bend = dot(u, u) - k * dot(a, a), end = slope > 0 ? T(-1) : T(1);
    T const x = bend > 0 ? larger(T(-1), smaller(T(1), -slope / bend)) : end;
    Vec3<T> const at = p + x * u, seen = e + x * a;
    return dot(at, at) - k * dot(seen, seen);
}

// May some ray of the fan? On its middle line that is a quadratic form. Beside it both sides change by dy (|v| + R |b|)
// at most, with `beside` by s, and (R |e| + s)^2 <= (1 + s / r) R^2 |e|^2 + s (s + r) whatever r is: here R |e| in the
// middle.
template <class T>
NUREC_FN bool meets(Facing<T> const& f, Fan<T> const& fan) {
    if (fan.dx < 0) return false;
    Vec3<T> const p = f.p + fan.x * f.u + fan.y * f.v, e = f.e + fan.x * f.a + fan.y * f.b;
    T const s = f.beside + fan.dy * (sqrt(dot(f.v, f.v)) + f.R * sqrt(dot(f.b, f.b))),
            r = f.R * sqrt(dot(e, e)) + T(1e-30);
    T const k = T(1.002) * f.R * f.R * (1 + s / r);
    return !(least_on_line(p, fan.dx * f.u, e, fan.dx * f.a, k) > s * (s + r));
}

}  // namespace nurec
