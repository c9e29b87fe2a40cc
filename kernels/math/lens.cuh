// SPDX-License-Identifier: Apache-2.0
// Bounds of a Gaussian in a camera with a lens beyond CameraModel's: OpenCV's rational pinhole and thin prism, fisheye,
// FTheta. nurec_lite/geometry/lens.py and nurec_lite/splat/project.py are the specification.
#pragma once

#include "project.cuh"

namespace nurec {

// A place q is (x / z, y / z), or the angle from the axis times its direction. The lens moves it to
//     q (1 + a1 r + ... + a8 r^8) / (1 + d1 r^2 + d2 r^4 + d3 r^6) + tangential + prism,   r = |q|
template <class T>
struct Lens {
    T angular;         // 1 or 0
    T a[8];            // of the powers of r, from the first on
    T d1, d2, d3;      // of the even powers below
    T p1, p2;          // tangential
    T s1, s2, s3, s4;  // thin prism
    T skew_u, skew_v;  // du/dy and dv/dx, pixels
    T limit;           // beyond this r places grow in proportion
    T edge;            // radians from the axis to the image's farthest corner

    // Whether there is one: a row without a lens has zeros.
    NUREC_FN bool exists() const { return limit > 0; }

    // 1 + a1 r + ... + a8 r^8 over the denominator.
    NUREC_FN T magnified(T r) const {
        T const r2 = r * r;
        T above = a[7];
#pragma unroll
        for (int k = 6; k >= 0; --k) above = a[k] + r * above;
        return (1 + r * above) / (1 + r2 * (d1 + r2 * (d2 + r2 * d3)));
    }

    NUREC_FN Vec2<T> move(Vec2<T> q) const {
        T const length = sqrt(q.x * q.x + q.y * q.y), scale = larger(length / limit, T(1)), inverse = 1 / scale;
        T const x = inverse * q.x, y = inverse * q.y, r = inverse * length, r2 = r * r, radial = magnified(r);
        T const dx = 2 * p1 * x * y + p2 * (r2 + 2 * x * x) + r2 * (s1 + r2 * s2);
        T const dy = p1 * (r2 + 2 * y * y) + 2 * p2 * x * y + r2 * (s3 + r2 * s4);
        return {scale * (x * radial + dx), scale * (y * radial + dy)};
    }

    NUREC_FN Vec2<T> place(Vec3<T> p) const {
        if (angular == 0) {
            T const z = fabs(p.z) < T(1e-6) ? T(1e-6) : p.z;
            return {p.x / z, p.y / z};
        }
        T const aside = sqrt(p.x * p.x + p.y * p.y);
        T const along = aside > T(1e-12) ? angle_of(aside, p.z) / aside : 1 / larger(p.z, T(1e-6));
        return {along * p.x, along * p.y};
    }

    NUREC_FN Place<T> project(CameraModel<T> const& camera, Vec3<T> p) const {
        Vec2<T> const seen = move(place(p));
        T const depth = angular == 0 ? p.z : T(sqrt(dot(p, p)));
        return {camera.fx * seen.x + skew_u * seen.y + camera.cx, camera.fy * seen.y + skew_v * seen.x + camera.cy,
                depth};
    }

    // CameraModel::appear through this lens.
    NUREC_FN Place<T> appear(CameraModel<T> const& camera, Motion<T> const& motion, Vec3<T> p, Vec3<T> v) const {
        T f = T(0.5);
        Place<T> at = project(camera, motion.at(p, v, f));
#pragma unroll 1
        for (int round = 1; round < 3 && camera.shutter != GLOBAL; ++round) {
            f = clamp01(camera.fraction(at.u, at.v));
            at = project(camera, motion.at(p, v, f));
        }
        return at;
    }
};

// Whether a sphere about a point in the camera's frame may reach the cone around the image.
template <class T>
NUREC_FN bool in_lens_cone(Lens<T> const& lens, Vec3<T> p, T radius) {
    T const distance = sqrt(dot(p, p)), aside = sqrt(p.x * p.x + p.y * p.y);
    T const angle = angle_of(aside, p.z) - T(asin(smaller(radius / larger(distance, T(1e-6)), T(1))));
    T const depth = lens.angular == 0 ? p.z : distance;
    return (depth + radius > T(NEAR)) & ((angle < lens.edge) | (radius >= distance));
}

// The depth that Gaussians are sorted by; `forward` as in View.
template <class T>
NUREC_FN T lens_depth(Lens<T> const& lens, Vec3<T> mean, Vec3<T> forward) {
    return lens.angular == 0 ? dot(mean, forward) : T(sqrt(dot(mean, mean)));
}

// The whole image for a Gaussian with a sigma point nearer than NEAR, of an angular lens along the direction of the
// mean: nothing linear holds there. `mean` is relative to the camera.
template <class T>
NUREC_FN Bounds<T> lens_bounds(CameraModel<T> const& camera, Lens<T> const& lens, Motion<T> const& motion, Vec3<T> mean,
                               Quat<T> q, Vec3<T> s, Vec3<T> v, T reach) {
    Vec3<T> axes[3];
    Place<T> at[7];
    sigma_axes(q, s, axes);
    at[0] = lens.appear(camera, motion, mean, v);
    T const distance = sqrt(dot(mean, mean));
    Vec3<T> const ahead = (1 / larger(distance, T(1e-6))) * mean;
    if (lens.angular != 0) at[0].depth = dot(mean, ahead);
#pragma unroll
    for (int k = 0; k < 6; ++k) {
        Vec3<T> const p = k < 3 ? mean + axes[k % 3] : mean - axes[k % 3];
        at[1 + k] = lens.appear(camera, motion, p, v);
        if (lens.angular != 0) at[1 + k].depth = dot(p, ahead);
    }
    Bounds<T> const b = unscented_bounds(at, reach);
    return any_nearer(at, T(NEAR)) || !finite(b) ? Bounds<T>{0, 0, camera.width, camera.height} : b;
}

}  // namespace nurec
