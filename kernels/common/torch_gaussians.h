// SPDX-License-Identifier: Apache-2.0
// Arguments of a call: the row of its view, and its Gaussians: S that stand still, then A that move.
#pragma once

#include "../math/view_row.cuh"
#include "gaussians.h"
#include "torch_check.h"

namespace nurec {

inline void check_view(at::Tensor const& view, at::Device device) {
    check_tensor(view, "view", at::kFloat, {VIEW_NUMBERS}, device);
    check_finite(view, "view");
}

// The sensor is a plain argument, since the host must not wait for the row.
inline void check_sensor(at::Tensor const& view, bool is_camera) {
    auto const host = values_of(view);
    if (!host) return;
    bool const there = reinterpret_cast<ViewRow<float> const*>(host->const_data_ptr<float>())->view.is_camera > 0;
    TORCH_CHECK_VALUE(there == is_camera, "view is of a ", there ? "camera" : "lidar",
                      ", but is_camera says otherwise");
}

inline ViewRow<float> const* row_of(at::Tensor const& view) {
    return reinterpret_cast<ViewRow<float> const*>(view.const_data_ptr<float>());
}

struct GaussianTensors {
    at::Tensor const &still_means, &still_quats, &means, &quats, &velocities, &scales, &opacities, &view;
};

// The tensors of nurec_lite.native.operators.shared.GaussianArrays.
inline GaussianTensors gaussians_of(at::TensorList t, at::Tensor const& view) {
    check_group(t, "gaussians", 7, "still_means, still_quats, means, quats, velocities, scales, opacities");
    return {t[0], t[1], t[2], t[3], t[4], t[5], t[6], view};
}

inline void check_gaussians(GaussianTensors const& g) {
    auto const device = g.means.device();
    auto const check = [&](at::Tensor const& t, char const* name, std::initializer_list<int64_t> shape) {
        check_tensor(t, name, at::kFloat, shape, device);
        check_finite(t, name);
    };
    check(g.still_means, "still_means", {-1, 3});
    check(g.means, "means", {-1, 3});
    auto const s = g.still_means.size(0), a = g.means.size(0);
    check(g.still_quats, "still_quats", {s, 4});
    check(g.quats, "quats", {a, 4});
    check(g.velocities, "velocities", {a, 3});
    check(g.scales, "scales", {s + a, 3});
    check_positive(g.scales, "scales");
    check(g.opacities, "opacities", {s + a});
    check_view(g.view, device);
}

// Pointers for the drivers.
inline Gaussians arrays_of(GaussianTensors const& g) {
    auto const array = [](at::Tensor const& t) { return t.const_data_ptr<float>(); };
    return {g.scales.size(0),   g.still_means.size(0),  array(g.still_means), array(g.still_quats),
            array(g.means),     array(g.quats),         array(g.velocities),  array(g.scales),
            array(g.opacities), &row_of(g.view)->centre};
}

}  // namespace nurec
