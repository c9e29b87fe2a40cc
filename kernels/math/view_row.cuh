// SPDX-License-Identifier: Apache-2.0
// A view as kernels read it: one row of numbers in device memory, so that a captured kernel reads the view that lies
// there when it runs. nurec_lite/splat/view_row.py fills it by the names below.
#pragma once

#include <cstddef>

#include "lens.cuh"
#include "rays.cuh"
#include "sensor.cuh"

namespace nurec {

template <class T>
struct ViewRow {
    View<T> view;
    Trajectory<T> path;
    Vec3<T> centre;  // metres, in the world: origin of the other numbers
    Lens<T> lens;    // of a camera with a lens that CameraModel does not have, else zeros
};

struct RowField {
    char const* name;
    std::size_t first, numbers;
};

#define NUREC_FIELD(field) \
    {#field, offsetof(ViewRow<float>, field) / sizeof(float), sizeof(ViewRow<float>::field) / sizeof(float)}

// All of them, in their order.
constexpr RowField VIEW_FIELDS[] = {
    NUREC_FIELD(view.motion.R0),
    NUREC_FIELD(view.motion.R1),
    NUREC_FIELD(view.motion.t0),
    NUREC_FIELD(view.motion.t1),
    NUREC_FIELD(view.motion.seconds),
    NUREC_FIELD(view.forward),
    NUREC_FIELD(view.travel),
    NUREC_FIELD(view.turning),
    NUREC_FIELD(view.is_camera),
    NUREC_FIELD(view.camera.width),
    NUREC_FIELD(view.camera.height),
    NUREC_FIELD(view.camera.fx),
    NUREC_FIELD(view.camera.fy),
    NUREC_FIELD(view.camera.cx),
    NUREC_FIELD(view.camera.cy),
    NUREC_FIELD(view.camera.k1),
    NUREC_FIELD(view.camera.k2),
    NUREC_FIELD(view.camera.p1),
    NUREC_FIELD(view.camera.p2),
    NUREC_FIELD(view.camera.k3),
    NUREC_FIELD(view.camera.shutter),
    NUREC_FIELD(view.lidar.spin_rate),
    NUREC_FIELD(view.lidar.azimuth_start),
    NUREC_FIELD(path.q),
    NUREC_FIELD(path.turn),
    NUREC_FIELD(path.start),
    NUREC_FIELD(path.end),
    NUREC_FIELD(path.seconds),
    NUREC_FIELD(centre),
    NUREC_FIELD(lens.angular),
    NUREC_FIELD(lens.a),
    NUREC_FIELD(lens.d1),
    NUREC_FIELD(lens.d2),
    NUREC_FIELD(lens.d3),
    NUREC_FIELD(lens.p1),
    NUREC_FIELD(lens.p2),
    NUREC_FIELD(lens.s1),
    NUREC_FIELD(lens.s2),
    NUREC_FIELD(lens.s3),
    NUREC_FIELD(lens.s4),
    NUREC_FIELD(lens.skew_u),
    NUREC_FIELD(lens.skew_v),
    NUREC_FIELD(lens.limit),
    NUREC_FIELD(lens.edge),
};

constexpr std::size_t VIEW_NUMBERS = sizeof(ViewRow<float>) / sizeof(float);

constexpr bool without_gaps() {
    std::size_t next = 0;
    for (RowField const& field : VIEW_FIELDS) {
        if (field.first != next) return false;
        next += field.numbers;
    }
    return next == VIEW_NUMBERS;
}
static_assert(without_gaps() && VIEW_NUMBERS == 84);

}  // namespace nurec
