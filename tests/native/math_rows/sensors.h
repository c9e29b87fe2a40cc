// SPDX-License-Identifier: Apache-2.0
// Adapters for corrected poses, sensors, projection and outlines.
#pragma once

#include "../../../kernels/math/correct.cuh"
#include "../../../kernels/math/outline.cuh"
#include "../../../kernels/math/project.cuh"
#include "../../../kernels/math/view_row.cuh"
#include "types.h"

namespace nurec::testing {

// ---- corrected sensors

NUREC_FN Vec2<D> knots_about(D first, D spacing, D n, D moment) {
    Between<D> const place = between_knots<D>(first, spacing, int(n), moment);
    return {D(place.k), place.weight};
}

NUREC_FN Array<16> moved_pose(Array<16> const& pose, M const& E, V shift) {
    Array<16> out;
    move_pose(pose.a, E, shift, out.a);
    return out;
}

NUREC_FN ViewRow<D> corrected_row(ViewRow<D> const& row, Correction<D> const& c) {
    ViewRow<D> out = row;
    correct_row(out, c);
    return out;
}

// ---- sensor

NUREC_FN Vec2<D> distort(Camera const& camera, Vec2<D> a) {
    return camera.distort(a);
}

NUREC_FN Vec2<D> undistort(Camera const& camera, Vec2<D> a) {
    return camera.undistort(a);
}

struct Axes {
    V a[3];
};

NUREC_FN Seven lidar_appear(Lidar const& lidar, Motion<D> const& motion, V mean, Axes const& axes, V v) {
    Seven out;
    lidar.appear(motion, moving(motion, mean, v), axes.a, out.at);
    return out;
}

// ---- project

NUREC_FN Axes axes_of(Q q, V s) {
    Axes out;
    sigma_axes(q, s, out.a);
    return out;
}

NUREC_FN Bounds<D> wider(Lidar const& lidar, Motion<D> const& motion, V mean, V v, Place<D> const& at,
                         Bounds<D> const& b) {
    V const middle = {cos(at.u), sin(at.u), 0};  // its length does not matter
    return over_the_seam(lidar, moving(motion, mean, v), middle, at, b);
}

// ---- outlines

struct Reading {
    D rows, on, steps;
};

struct EllipseRow {
    Vec2<D> at, speed;
    Sym2<D> S;
    D nearest, known;

    NUREC_FN ProjectedEllipse<D> ellipse() const { return {at, speed, S, nearest, known > 0}; }
};

NUREC_FN EllipseRow row_of_ellipse(ProjectedEllipse<D> const& a) {
    return {a.at, a.speed, a.S, a.nearest, D(a.known)};
}

struct RollingShutterRow {
    EllipseRow ellipse;
    D late;
};

NUREC_FN RollingShutterRow ellipse_by_rows(Camera const& camera, D fraction, EllipseRow const& a) {
    RollingShutterEllipse<D> const found = with_rolling_shutter(camera, fraction, a.ellipse());
    return {row_of_ellipse(found.ellipse), found.late};
}

}  // namespace nurec::testing
