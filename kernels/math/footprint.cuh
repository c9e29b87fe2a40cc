// SPDX-License-Identifier: Apache-2.0
// Size of objects in an image; nurec_lite/scene/footprint.py is the specification.
#pragma once

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

// Pixels a metre at the depth of a point in the camera's frame; 0 if it is nearer than `nearest` metres, or more than
// `margin` pixels outside of the image.
template <class T>
NUREC_FN T pixels_a_metre(CameraModel<T> const& camera, Vec3<T> p, T nearest, T margin) {
    if (!(p.z > nearest)) return 0;
    Place<T> const at = camera.project(p);
    bool const across = at.u > -margin && at.u < camera.width + margin;
    bool const down = at.v > -margin && at.v < camera.height + margin;
    return across && down ? camera.fx / p.z : T(0);
}

}  // namespace nurec
