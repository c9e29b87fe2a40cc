// SPDX-License-Identifier: Apache-2.0
#include "calibration.cuh"

namespace nurec::cpu {

void correct_view(CalibrationArgs const& known, ViewArgs const& view, CorrectedView const& out) {
    Between<float> const place = knot_interval(known);
    Correction<float> const c = correction_of(known, place);
    write_poses(view, c, out);
    *out.moment = moment_of(known);
    for (int j = 0; j < 6; ++j) out.drift[j] = drift_of(known, place, j);
    *out.row = *view.row;
    correct_row(*out.row, c);
}

void correct_view_backward(CalibrationArgs const& known, ViewRow<float> const* row, CorrectedGrads const& d,
                           Corrections<float> const& grads) {
    Between<float> const place = knot_interval(known);
    Correction<float> const of_sensor = correction_backward(row, d.pose_delta);
    Correction<float> const of_rig = sensor_correction_backward(mount_of(known), of_sensor);
    for (int64_t k = 0; k < known.knots; ++k) write_rig(grads, place, of_rig, k);
    for (int64_t c = 0; c < known.cameras; ++c) write_camera(known, grads, of_sensor, c);
    for (int64_t r = 0; r < known.cameras * known.knots; ++r) write_drift(known, grads, place, d.drift, r);
}

}  // namespace nurec::cpu
