// SPDX-License-Identifier: Apache-2.0
// Which Gaussians a bundle of neighbouring rays may meet: a bound, for lists that hold no others.
//
// The rays of a bundle lie in a pyramid: their directions are multiples of c + x a + y b with |x|, |y| <= 1, their
// origins within `rho` of r, their delays within `tau` of dt. With g = M (r - mu) and e(x, y) = M (c + x a + y b), a
// ray meets the Gaussian if |g x e| <= R |e|, where R is the reach in units of M. On the left stands a distance in the
// plane across g, linear in x and y: its least value over the square has a closed form. On the right |e| is convex, so
// that a corner has its greatest. Origins and delays move g by rho + tau |drift| at most, because no row of M is longer
// than 1.
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
};
static_assert(sizeof(Bundle<float>) == 16 * sizeof(float));

// The least |p + x u + y v|^2 over |x|, |y| <= 1 for u, v and p in one plane: 0 within, else on one of the edges.
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

// May some ray of the bundle see the Gaussian?
template <class T>
NUREC_FN bool meets(Seen<T> const& f, Bundle<T> const& rays) {
    Vec3<T> const g = f.g + f.M * rays.r + rays.dt * f.drift;
    Vec3<T> const e = f.M * rays.c, a = f.M * rays.a, b = f.M * rays.b;
    Vec3<T> const s = a + b, d = a - b;
    T const longest =
        larger(larger(dot(e + s, e + s), dot(e - s, e - s)), larger(dot(e + d, e + d), dot(e - d, e - d)));
    T const moved = rays.rho + rays.tau * sqrt(dot(f.drift, f.drift));
    T const slack = moved + T(2e-6) * sqrt(dot(g, g));  // what rounding does
    T const R = f.reach + slack;
    if (-dot(g, e) + fabs(dot(g, a)) + fabs(dot(g, b)) + slack * sqrt(longest) < 0) return false;  // behind all of them
    return !(least_square(cross(g, e), cross(g, a), cross(g, b)) > T(1.002) * R * R * longest);
}

}  // namespace nurec
