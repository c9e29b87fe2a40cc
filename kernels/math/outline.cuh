// SPDX-License-Identifier: Apache-2.0
// The rays of an image that may hit a Gaussian lie within an ellipse, so those of a row of pixels are an interval.
// (Rays nearer to a Gaussian's own plane: conic.cuh.)
//
// Seen along z, in axes sheared so that z goes through the mean c, an ellipsoid of second moments T touches the rays
// with |S^-1/2 (x - m)| = 1,
//     m = -(T_xz, T_yz) / w     S = m m^T + T / w     w = c_z^2 - T_zz
// in x / z and y / z from the mean's: the dual of the cone of tangents is T - c c^T, and nothing cancels. A row that is
// read later sees it moved by the speed of its image, so that the ellipse of all rows is sheared. The rest,
// distortion of lenses and rotation of views, goes into `spare`.
#pragma once

#include "project.cuh"

namespace nurec {

template <class T>
struct Interval {
    T low, high;  // none if low > high
};

// Pixels, of u to the right and v downwards.
template <class T>
struct alignas(16) Outline {
    T u, v;            // its middle
    T half;            // of its height
    T tangent_offset;  // so far below the middle it reaches farthest to the right, so far above it to the left
    T slope;           // du/dv of the middles of its rows
    T width;           // half of it, of the row of its middle
    T margin;          // that it may be larger on any side
    T known;           // 0: no ellipse, or too much motion
};

// Columns that the outline may reach in the rows from `top` to `bottom`.
template <class T>
NUREC_FN Interval<T> columns_within(Outline<T> const& o, T top, T bottom) {
    T const a = larger(top - o.margin - o.v, -o.half), b = smaller(bottom + o.margin - o.v, o.half);
    if (a > b) return {1, 0};
    T const right = larger(a, smaller(b, o.tangent_offset)), left = larger(a, smaller(b, -o.tangent_offset));
    T const inverse = 1 / (o.half * o.half);
    T const x1 = o.slope * right + o.width * sqrt(larger(1 - right * right * inverse, T(0)));
    T const x0 = o.slope * left - o.width * sqrt(larger(1 - left * left * inverse, T(0)));
    return {o.u + x0 - o.margin, o.u + x1 + o.margin};
}

// A Gaussian in a sensor's frame, which turns and moves.
template <class T>
struct GaussianInSensor {
    Vec3<T> c, change;  // metres: its mean at `fraction`, and the change of that over the view
    Mat3<T> axes;       // rows, unit
    T fraction;         // of the view
};

template <class T>
NUREC_FN GaussianInSensor<T> gaussian_in_sensor_at(Motion<T> const& motion, Moving<T> const& path, Quat<T> q,
                                                   T fraction) {
    Mat3<T> const Rt = transposed(quat_to_matrix(q));
    auto const turned = [&](Vec3<T> axis) { return motion.of_direction(axis).at(fraction); };
    return {path.at(fraction), path.rate(fraction), {turned(Rt.r0), turned(Rt.r1), turned(Rt.r2)}, fraction};
}

// When a camera reads the row of its mean.
template <class T>
NUREC_FN GaussianInSensor<T> gaussian_in_sensor(CameraModel<T> const& camera, Motion<T> const& motion, Vec3<T> mean,
                                                Quat<T> q, Vec3<T> v) {
    Moving<T> const path = moving(motion, mean, v);
    T f = T(0.5);
    for (int round = 0; round < 2 && camera.shutter != GLOBAL; ++round) {
        Place<T> const place = camera.project(path.at(f));
        f = clamp01(camera.fraction(place.u, place.v));
    }
    return gaussian_in_sensor_at(motion, path, q, f);
}

// Its mean, in standard deviations from the sensor.
template <class T>
NUREC_FN T deviations_away(GaussianInSensor<T> const& in_sensor, Vec3<T> s) {
    Vec3<T> const along = in_sensor.axes * in_sensor.c, at = {along.x / s.x, along.y / s.y, along.z / s.z};
    return sqrt(dot(at, at));
}

// An ellipse, and its middle's speed: of x / z and y / z, then of pixels.
template <class T>
struct ProjectedEllipse {
    Vec2<T> at, speed;  // the speed for a whole view
    Sym2<T> S;
    T nearest;  // depth in metres
    bool known;
};

template <class T>
NUREC_FN ProjectedEllipse<T> project_ellipse(GaussianInSensor<T> const& in_sensor, Vec3<T> s, T reach) {
    T const depth = 1 / in_sensor.c.z;
    Vec2<T> const mean = {depth * in_sensor.c.x, depth * in_sensor.c.y};
    Vec3<T> const a = (reach * s.x) * in_sensor.axes.r0, b = (reach * s.y) * in_sensor.axes.r1,
                  c = (reach * s.z) * in_sensor.axes.r2;
    Vec3<T> const z = {a.z, b.z, c.z}, x = Vec3<T>{a.x, b.x, c.x} - mean.x * z, y = Vec3<T>{a.y, b.y, c.y} - mean.y * z;
    T const zz = dot(z, z), square = in_sensor.c.z * in_sensor.c.z, inverse = 1 / (square - zz);
    Vec2<T> const m = {-inverse * dot(x, z), -inverse * dot(y, z)};
    Sym2<T> const S = {m.x * m.x + inverse * dot(x, x), m.x * m.y + inverse * dot(x, y),
                       m.y * m.y + inverse * dot(y, y)};
    Vec2<T> const speed = {depth * (in_sensor.change.x - mean.x * in_sensor.change.z),
                           depth * (in_sensor.change.y - mean.y * in_sensor.change.z)};
    return {
        {mean.x + m.x, mean.y + m.y}, speed, S, in_sensor.c.z - sqrt(zz), in_sensor.c.z > 0 && zz < T(0.8) * square};
}

// Largest rate of change of a lens's magnification up to this distance from its axis.
template <class T>
NUREC_FN T bending(CameraModel<T> const& camera, T r) {
    T const rr = r * r;
    return r * (6 * fabs(camera.k1) + rr * (20 * fabs(camera.k2) + rr * 42 * fabs(camera.k3))) +
           6 * (fabs(camera.p1) + fabs(camera.p2));
}

template <class T>
NUREC_FN ProjectedEllipse<T> in_pixels(CameraModel<T> const& camera, ProjectedEllipse<T> ellipse) {
    if (camera.bends()) {
        Sym2<T> const J = camera.stretch(ellipse.at);
        ellipse = {camera.distort(ellipse.at), J * ellipse.speed, stretched(J, ellipse.S), ellipse.nearest,
                   ellipse.known};
    }
    T const fx = camera.fx, fy = camera.fy;
    return {{fx * ellipse.at.x + camera.cx, fy * ellipse.at.y + camera.cy},
            {fx * ellipse.speed.x, fy * ellipse.speed.y},
            {fx * fx * ellipse.S.xx, fx * fy * ellipse.S.xy, fy * fy * ellipse.S.yy},
            ellipse.nearest,
            ellipse.known};
}

// Ellipse of a rolling shutter for a Gaussian at `at` when the view is at `fraction`: row x sees it at `at` + speed
// (f(x) - fraction).
template <class T>
struct RollingShutterEllipse {
    ProjectedEllipse<T> ellipse;
    T late;  // some of its rays are so much later or earlier, as a share of the view
};

template <class T>
NUREC_FN RollingShutterEllipse<T> with_rolling_shutter(CameraModel<T> const& camera, T fraction,
                                                       ProjectedEllipse<T> const& a) {
    if (camera.shutter == GLOBAL) return {a, 0};
    Vec2<T> const g = camera.reading();
    T const keeps = 1 - dot(g, a.speed), late = (camera.fraction(a.at.x, a.at.y) - fraction) / keeps;
    Vec2<T> const t = {a.speed.x / keeps, a.speed.y / keeps}, Sg = a.S * g;
    T const gSg = dot(g, Sg);
    Sym2<T> const S = {a.S.xx + t.x * (2 * Sg.x + t.x * gSg), a.S.xy + t.x * Sg.y + t.y * (Sg.x + t.x * gSg),
                       a.S.yy + t.y * (2 * Sg.y + t.y * gSg)};
    T const around = fabs(g.x) * sqrt(S.xx) + fabs(g.y) * sqrt(S.yy);
    Vec2<T> const at = {a.at.x + late * a.speed.x, a.at.y + late * a.speed.y};
    return {{at, a.speed, S, a.nearest, a.known && keeps > T(0.5)}, smaller(fabs(late) + around, T(1))};
}

template <class T>
NUREC_FN Outline<T> upright(ProjectedEllipse<T> const& a, T margin, bool known) {
    T const least = T(1e-6);  // so that there is something to divide by
    T const uu = a.S.xx + least, vv = a.S.yy + least, slope = a.S.xy / vv, side = sqrt(uu);
    T const width = sqrt(larger(uu - a.S.xy * slope, T(0))) + T(5e-4) * side;  // for rounding
    return {a.at.x, a.at.y, sqrt(vv), a.S.xy / side, slope, width, margin, T(known)};
}

// Outline of the rays that see `reach` standard deviations of the Gaussian or fewer, also where |g x e| is rounded
// (gaussian.cuh).
template <class T>
NUREC_FN Outline<T> outline_of(View<T> const& view, Vec3<T> mean, Quat<T> q, Vec3<T> s, Vec3<T> v, T reach) {
    CameraModel<T> const& camera = view.camera;
    GaussianInSensor<T> const in_sensor = gaussian_in_sensor(camera, view.motion, mean, q, v);
    ProjectedEllipse<T> const flat =
        project_ellipse(in_sensor, s, T(1.001) * reach + T(2e-6) * deviations_away(in_sensor, s));
    RollingShutterEllipse<T> const read = with_rolling_shutter(camera, in_sensor.fraction, in_pixels(camera, flat));
    T const side = sqrt(flat.S.xx + flat.S.yy), wide = 1 + dot(flat.at, flat.at);
    T const pace = T(1.5) * wide * (sqrt(dot(in_sensor.change, in_sensor.change)) / flat.nearest + view.turning);
    T const moved = read.late * pace, turned = T(0.125) * wide * view.turning * view.turning;
    T const bent = camera.bends() ? bending(camera, sqrt(wide - 1) + side) : T(0);
    T const rest = turned + 2 * moved * (side + moved) + bent * side * (T(0.5) * side + moved);
    return upright(read.ellipse, T(0.01) + larger(camera.fx, camera.fy) * rest, read.ellipse.known && moved < T(0.1));
}

}  // namespace nurec
