// SPDX-License-Identifier: Apache-2.0
// The Gaussians of a call: S that stand still, and behind them A that move.
#pragma once

#include "gaussians.h"
#include <cmath>

#include "torch_check.h"

namespace nurec {

struct GaussianTensors {
    at::Tensor const &still_means, &still_quats, &means, &quats, &velocities, &scales, &opacities;
    at::ArrayRef<double> centre;  // metres, subtracted from means; empty: they are relative to it already
};

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
    TORCH_CHECK_VALUE(g.centre.empty() || g.centre.size() == 3, "centre has ", g.centre.size(),
                      " numbers, but must have 3 or none");
    for (double const c : g.centre) TORCH_CHECK_VALUE(std::isfinite(c), "centre holds ", c, ", but must be finite");
}

// As the drivers take them.
inline Gaussians arrays_of(GaussianTensors const& g) {
    auto const c = [&](std::size_t k) { return g.centre.empty() ? 0.f : static_cast<float>(g.centre[k]); };
    auto const array = [](at::Tensor const& t) { return t.const_data_ptr<float>(); };
    return {g.scales.size(0), g.still_means.size(0), array(g.still_means), array(g.still_quats), array(g.means),
            array(g.quats),   array(g.velocities),   array(g.scales),      array(g.opacities),   {c(0), c(1), c(2)}};
}

}  // namespace nurec
