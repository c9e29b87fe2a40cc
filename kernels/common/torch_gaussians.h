// SPDX-License-Identifier: Apache-2.0
// The Gaussians of a call: S that stand still, then A that move; with their view.
#pragma once

#include "gaussians.h"
#include "torch_view.h"

namespace nurec {

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
