// SPDX-License-Identifier: Apache-2.0
// A few hundred numbers: one block. One thread computes the values that the others copy or spread. It replaces
// some hundred launches on tensors as small as these.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "calibration.cuh"

namespace nurec::cuda {
namespace {

constexpr int COPYING = 64;  // threads: as many as a row has numbers, and two

__global__ void __launch_bounds__(COPYING)
    correct_view_kernel(CalibrationArgs known, ViewArgs view, CorrectedView out) {
    __shared__ ViewRow<float> row;
    copy_numbers(row, view.row);
    __syncthreads();
    if (threadIdx.x == 0) {
        Between<float> const place = knot_interval(known);
        Correction<float> const c = correction_of(known, place);
        write_poses(view, c, out);
        *out.moment = moment_of(known);
        for (int j = 0; j < 6; ++j) out.drift[j] = drift_of(known, place, j);
        correct_row(row, c);
    }
    __syncthreads();
    copy_numbers(*out.row, &row);
}

__global__ void __launch_bounds__(THREADS)
    correct_view_backward_kernel(CalibrationArgs known, ViewRow<float> const* row, CorrectedGrads d,
                                 Corrections<float> grads) {
    Between<float> const place = knot_interval(known);
    Correction<float> const of_sensor = correction_backward(row, d.pose_delta);
    Correction<float> const of_rig = sensor_correction_backward(mount_of(known), of_sensor);
    for (int64_t k = threadIdx.x; k < known.knots; k += THREADS) write_rig(grads, place, of_rig, k);
    for (int64_t c = threadIdx.x; c < known.cameras; c += THREADS) write_camera(known, grads, of_sensor, c);
    for (int64_t r = threadIdx.x; r < known.cameras * known.knots; r += THREADS)
        write_drift(known, grads, place, d.drift, r);
}

}  // namespace

void correct_view(CalibrationArgs const& known, ViewArgs const& view, CorrectedView const& out, Queue const& queue) {
    correct_view_kernel<<<1, COPYING, 0, queue.stream>>>(known, view, out);
}

void correct_view_backward(CalibrationArgs const& known, ViewRow<float> const* row, CorrectedGrads const& d,
                           Corrections<float> const& grads, Queue const& queue) {
    correct_view_backward_kernel<<<1, THREADS, 0, queue.stream>>>(known, row, d, grads);
}

}  // namespace nurec::cuda
