// SPDX-License-Identifier: Apache-2.0
// Size of objects in an image; nurec_lite/scene/footprint.py is the specification.
#pragma once

#include "lens.cuh"
#include "se3.cuh"
#include "sensor.cuh"

namespace nurec {

// A camera where it took an image.
template <class T>
struct Lookout {
    Mat3<T> R;  // camera from world
    Vec3<T> t;
    CameraModel<T> camera;
};

// Pixels a metre at the depth of a place; 0 if it is nearer than `nearest` metres, or more than `margin` pixels outside
// of the image.
template <class T>
NUREC_FN T pixels_a_metre_at(CameraModel<T> const& camera, Place<T> at, T nearest, T margin) {
    bool const across = at.u > -margin && at.u < camera.width + margin;
    bool const down = at.v > -margin && at.v < camera.height + margin;
    return at.depth > nearest && across && down ? camera.fx / at.depth : T(0);
}

// The same of a point in the camera's frame.
template <class T>
NUREC_FN T pixels_a_metre(CameraModel<T> const& camera, Vec3<T> p, T nearest, T margin) {
    if (!(p.z > nearest)) return 0;
    return pixels_a_metre_at(camera, camera.project(p), nearest, margin);
}

// Where a lens shows a point. The depth is negative where an angular lens has no formula: beyond its limit.
template <class T>
NUREC_FN Place<T> place_through(CameraModel<T> const& camera, Lens<T> const& lens, Vec3<T> p) {
    Place<T> at = lens.project(camera, p);
    Vec2<T> const q = lens.place(p);
    if (lens.angular != 0 && !(sqrt(q.x * q.x + q.y * q.y) <= lens.limit)) at.depth = -at.depth;
    return at;
}

}  // namespace nurec
