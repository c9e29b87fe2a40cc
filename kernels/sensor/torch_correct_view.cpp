// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::correct_view and ::correct_view_backward: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <limits>
#include <tuple>
#include <vector>

#include "../common/torch_gaussians.h"
#include "correct_view.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

struct CalibrationTensors {
    at::Tensor const &times, &moment, &mount, &velocity;
    at::Tensor const &rig_rotations, &rig_translations, &camera_rotations, &camera_translations, &exposure_drift;
    at::Tensor const& camera_offsets;
};

// The tensors of nurec_lite.native.operators.correct_view.CalibrationArgs.
CalibrationTensors calibration_tensors(at::TensorList t) {
    check_group(t, "known", 10,
                "times, moment, mount, velocity, rig_rotations, rig_translations, camera_rotations, "
                "camera_translations, exposure_drift, camera_offsets");
    return {t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9]};
}

CalibrationArgs checked_calibration(CalibrationTensors const& t, int64_t camera) {
    auto const device = t.times.device();
    check_tensor(t.times, "times", at::kDouble, {-1}, device);
    int64_t const knots = t.times.size(0), cameras = t.camera_rotations.size(0);
    TORCH_CHECK_VALUE(knots >= 2 && knots <= std::numeric_limits<int>::max(), "times has ", knots,
                      " knots, but must have at least 2");
    check_tensor(t.moment, "moment", at::kDouble, {}, device);
    check_tensor(t.mount, "mount", at::kFloat, {4, 3}, device);
    check_tensor(t.velocity, "velocity", at::kFloat, {6}, device);
    check_tensor(t.rig_rotations, "rig_rotations", at::kFloat, {knots, 3}, device);
    check_tensor(t.rig_translations, "rig_translations", at::kFloat, {knots, 3}, device);
    check_tensor(t.camera_rotations, "camera_rotations", at::kFloat, {cameras, 3}, device);
    check_tensor(t.camera_translations, "camera_translations", at::kFloat, {cameras, 3}, device);
    check_tensor(t.exposure_drift, "exposure_drift", at::kFloat, {cameras, knots, 2, 3}, device);
    check_tensor(t.camera_offsets, "camera_offsets", at::kFloat, {cameras}, device);
    TORCH_CHECK_VALUE(camera >= -1 && camera < cameras, "camera is ", camera, ", but must be -1 (none) or below ",
                      cameras);
    return {knots,
            cameras,
            camera,
            t.times.const_data_ptr<double>(),
            t.moment.const_data_ptr<double>(),
            t.mount.const_data_ptr<float>(),
            t.velocity.const_data_ptr<float>(),
            {t.rig_rotations.const_data_ptr<float>(), t.rig_translations.const_data_ptr<float>(),
             t.camera_rotations.const_data_ptr<float>(), t.camera_translations.const_data_ptr<float>(),
             t.exposure_drift.const_data_ptr<float>(), t.camera_offsets.const_data_ptr<float>()}};
}

ViewArgs checked_view(at::Tensor const& view, at::Tensor const& start, at::Tensor const& end, at::Device device) {
    check_view(view, device);
    check_tensor(start, "start", at::kFloat, {4, 4}, device);
    check_tensor(end, "end", at::kFloat, {4, 4}, device);
    return {row_of(view), start.const_data_ptr<float>(), end.const_data_ptr<float>()};
}

using FiveTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// `forward` and `backward` are the device's drivers.
template <class Forward>
FiveTensors correct_view_by(Forward const& forward, at::Tensor const& view, at::Tensor const& start,
                            at::Tensor const& end, at::TensorList known, int64_t camera) {
    CalibrationArgs const given = checked_calibration(calibration_tensors(known), camera);
    ViewArgs const seen = checked_view(view, start, end, known[0].device());
    at::Tensor row = at::empty_like(view), ends = at::empty({2, 4, 4}, view.options());
    at::Tensor pose_delta = at::empty({6}, view.options()), drift = at::empty({2, 3}, view.options());
    at::Tensor moment = at::empty({}, known[0].options());
    forward(given, seen,
            CorrectedView{reinterpret_cast<ViewRow<float>*>(row.mutable_data_ptr<float>()),
                          ends.mutable_data_ptr<float>(), pose_delta.mutable_data_ptr<float>(),
                          drift.mutable_data_ptr<float>(), moment.mutable_data_ptr<double>()});
    return {row, ends, pose_delta, drift, moment};
}

template <class Backward>
std::vector<at::Tensor> correct_view_gradients_by(Backward const& backward, at::Tensor const& view,
                                                  at::TensorList known, int64_t camera, at::Tensor const& d_pose_delta,
                                                  at::Tensor const& d_drift) {
    CalibrationTensors const t = calibration_tensors(known);
    CalibrationArgs const given = checked_calibration(t, camera);
    auto const device = t.times.device();
    check_view(view, device);
    check_tensor(d_pose_delta, "d_pose_delta", at::kFloat, {6}, device);
    check_tensor(d_drift, "d_drift", at::kFloat, {2, 3}, device);
    std::vector<at::Tensor> grads;
    for (auto const* learned : {&t.rig_rotations, &t.rig_translations, &t.camera_rotations, &t.camera_translations,
                                &t.exposure_drift, &t.camera_offsets})
        grads.push_back(at::empty_like(*learned));
    auto const to = [&](int k) { return grads[std::size_t(k)].mutable_data_ptr<float>(); };
    backward(given, row_of(view), CorrectedGrads{d_pose_delta.const_data_ptr<float>(), d_drift.const_data_ptr<float>()},
             Corrections<float>{to(0), to(1), to(2), to(3), to(4), to(5)});
    return grads;
}

using at::Tensor;

#ifdef NUREC_CUDA

FiveTensors correct_view(Tensor const& view, Tensor const& start, Tensor const& end, at::TensorList known,
                         int64_t camera) {
    Site site(view.device());
    auto const launch = [&](CalibrationArgs const& given, ViewArgs const& seen, CorrectedView const& out) {
        cuda::correct_view(given, seen, out, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return correct_view_by(launch, view, start, end, known, camera);
}

std::vector<Tensor> correct_view_backward(Tensor const& view, at::TensorList known, int64_t camera,
                                          Tensor const& d_pose_delta, Tensor const& d_drift) {
    Site site(view.device());
    auto const launch = [&](CalibrationArgs const& given, ViewRow<float> const* row, CorrectedGrads const& d,
                            Corrections<float> const& grads) {
        cuda::correct_view_backward(given, row, d, grads, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return correct_view_gradients_by(launch, view, known, camera, d_pose_delta, d_drift);
}

#else

FiveTensors correct_view(Tensor const& view, Tensor const& start, Tensor const& end, at::TensorList known,
                         int64_t camera) {
    return correct_view_by(&cpu::correct_view, view, start, end, known, camera);
}

std::vector<Tensor> correct_view_backward(Tensor const& view, at::TensorList known, int64_t camera,
                                          Tensor const& d_pose_delta, Tensor const& d_drift) {
    return correct_view_gradients_by(&cpu::correct_view_backward, view, known, camera, d_pose_delta, d_drift);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("correct_view", &correct_view);
    m.impl("correct_view_backward", &correct_view_backward);
}

}  // namespace nurec
