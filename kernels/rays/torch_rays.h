// SPDX-License-Identifier: Apache-2.0
// What the operator rays takes and gives, on either device.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstring>
#include <tuple>

#include "../math/rays.cuh"
#include "../common/torch_check.h"

namespace nurec {

inline Trajectory<float> check_rays(at::Tensor const& trajectory, at::Tensor const& directions,
                                    at::Tensor const& fractions) {
    Trajectory<float> path;
    check_tensor(trajectory, "trajectory", at::kFloat, {sizeof(path) / sizeof(float)}, at::kCPU);
    check_tensor(directions, "directions", at::kFloat, {-1, 3}, directions.device());
    check_tensor(fractions, "fractions", at::kFloat, {-1}, directions.device());
    TORCH_CHECK_VALUE(fractions.size(0) == directions.size(0) || fractions.size(0) == 1, "fractions has shape ",
                      fractions.sizes(), ", but must have [", directions.size(0), "], or [1] if all rays are alike");
    check_finite(trajectory, "trajectory");
    check_finite(directions, "directions");
    check_finite(fractions, "fractions");
    std::memcpy(&path, trajectory.const_data_ptr<float>(), sizeof(path));
    return path;
}

// Params: RayParams of the device's drivers; `make` runs them.
template <class Params, class Make>
std::tuple<at::Tensor, at::Tensor, at::Tensor> rays_by(Make const& make, at::Tensor const& trajectory,
                                                       at::Tensor const& directions, at::Tensor const& fractions) {
    Trajectory<float> const path = check_rays(trajectory, directions, fractions);
    int64_t const n = directions.size(0);
    at::Tensor origins = at::empty_like(directions), world = at::empty_like(directions);
    at::Tensor delays = at::empty({n}, directions.options());
    make(Params{n, fractions.size(0) == 1, path, directions.const_data_ptr<float>(), fractions.const_data_ptr<float>(),
                origins.mutable_data_ptr<float>(), world.mutable_data_ptr<float>(), delays.mutable_data_ptr<float>()});
    return {origins, world, delays};
}

}  // namespace nurec
