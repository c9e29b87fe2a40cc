// SPDX-License-Identifier: Apache-2.0
// Code that both drivers share: arrays to a view's correction, and its gradient to those of the arrays.
#pragma once

#include "correct_view.h"

namespace nurec {

NUREC_FN Vec3<float> row3(float const* a, int64_t i) {
    return {a[3 * i], a[3 * i + 1], a[3 * i + 2]};
}

NUREC_FN void set3(float* a, Vec3<float> v) {
    a[0] = v.x, a[1] = v.y, a[2] = v.z;
}

// Lag in seconds of the camera's clock behind the rig's; 0 if the sensor is no camera.
NUREC_FN float offset_of(CalibrationArgs const& known) {
    return known.camera < 0 ? 0.f : known.learned.camera_offsets[known.camera];
}

NUREC_FN double moment_of(CalibrationArgs const& known) {
    return *known.moment + offset_of(known);
}

NUREC_FN Between<float> knot_interval(CalibrationArgs const& known) {
    return between_knots<float>(known.times[0], known.times[1] - known.times[0], int(known.knots), moment_of(known));
}

NUREC_FN Correction<float> velocity_of(CalibrationArgs const& known) {
    return {row3(known.velocity, 0), row3(known.velocity, 1)};
}

NUREC_FN Mount<float> mount_of(CalibrationArgs const& known) {
    float const* m = known.mount;
    return {{row3(m, 0), row3(m, 1), row3(m, 2)}, row3(m, 3)};
}

NUREC_FN Vec3<float> at(float const* knots, Between<float> place) {
    return (1 - place.weight) * row3(knots, place.k) + place.weight * row3(knots, place.k + 1);
}

NUREC_FN Correction<float> correction_of(CalibrationArgs const& known, Between<float> place) {
    Corrections<float const> const& l = known.learned;
    Correction<float> own = {};
    if (known.camera >= 0)
        own = drifted({row3(l.camera_rotations, known.camera), row3(l.camera_translations, known.camera)},
                      velocity_of(known), offset_of(known));
    Correction<float> const rig = {at(l.rig_rotations, place), at(l.rig_translations, place)};
    return sensor_correction(mount_of(known), rig, own);
}

// Number j of the six of an exposure's drift.
NUREC_FN float drift_of(CalibrationArgs const& known, Between<float> place, int j) {
    if (known.camera < 0) return 0;
    float const* a = known.learned.exposure_drift + 6 * (known.camera * known.knots + place.k) + j;
    return (1 - place.weight) * a[0] + place.weight * a[6];
}

// All but the row, which each driver copies in its own way before `correct_row`, and the drift.
NUREC_FN void write_poses(ViewArgs const& view, Correction<float> c, CorrectedView const& out) {
    Mat3<float> const E = quat_to_matrix(rotvec_to_quat(c.turn));
    move_pose(view.start, E, c.shift, out.ends);
    move_pose(view.end, E, c.shift, out.ends + 16);
    Correction<float> const pose_delta = in_world(view.row->view.motion.R0, c);
    set3(out.pose_delta, pose_delta.turn), set3(out.pose_delta + 3, pose_delta.shift);
}

// dL/d(the sensor's correction).
NUREC_FN Correction<float> correction_backward(ViewRow<float> const* row, float const* pose_delta) {
    return in_world_backward(row->view.motion.R0, {row3(pose_delta, 0), row3(pose_delta, 1)});
}

NUREC_FN float share_of(Between<float> place, int64_t knot) {
    return knot == place.k ? 1 - place.weight : knot == place.k + 1 ? place.weight : 0.f;
}

// Writes the gradient of row i of all K (rig), C (cameras) and C K (drift) rows.
NUREC_FN void write_rig(Corrections<float> const& grads, Between<float> place, Correction<float> rig, int64_t knot) {
    float const share = share_of(place, knot);
    set3(grads.rig_rotations + 3 * knot, share * rig.turn), set3(grads.rig_translations + 3 * knot, share * rig.shift);
}

NUREC_FN void write_camera(CalibrationArgs const& known, Corrections<float> const& grads, Correction<float> d,
                           int64_t camera) {
    float const own = camera == known.camera ? 1.f : 0.f;
    set3(grads.camera_rotations + 3 * camera, own * d.turn);
    set3(grads.camera_translations + 3 * camera, own * d.shift);
    grads.camera_offsets[camera] = own * drifted_backward(velocity_of(known), d);
}

NUREC_FN void write_drift(CalibrationArgs const& known, Corrections<float> const& grads, Between<float> place,
                          float const* drift, int64_t row) {
    float const own = row / known.knots == known.camera ? share_of(place, row % known.knots) : 0.f;
    float* const to = grads.exposure_drift + 6 * row;
    set3(to, own * row3(drift, 0)), set3(to + 3, own * row3(drift, 1));
}

}  // namespace nurec
