// SPDX-License-Identifier: Apache-2.0
// Sentences for operators that are called wrongly.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <initializer_list>

namespace nurec {

// -1 in `shape` stands for any size.
inline void check_tensor(at::Tensor const& t, char const* name, at::ScalarType dtype,
                         std::initializer_list<int64_t> shape, at::Device device) {
    bool fits = t.dim() == static_cast<int64_t>(shape.size());
    int64_t k = 0;
    for (int64_t const size : shape) {
        fits = fits && (size < 0 || t.size(k) == size);
        ++k;
    }
    TORCH_CHECK_VALUE(fits, name, " has shape ", t.sizes(), ", but must have ",
                      at::IntArrayRef(shape.begin(), shape.size()), " (-1: any)");
    TORCH_CHECK_TYPE(t.scalar_type() == dtype, name, " is ", t.scalar_type(), ", but must be ", dtype);
    TORCH_CHECK_VALUE(t.device() == device, name, " is on ", t.device(), ", but must be on ", device);
    TORCH_CHECK_VALUE(t.is_contiguous(), name, " is not contiguous; call .contiguous()");
}

inline void check_gaussians(at::Tensor const& means, at::Tensor const& quats, at::Tensor const& scales,
                            at::Tensor const& opacities, at::Tensor const& velocities) {
    check_tensor(means, "means", at::kFloat, {-1, 3}, means.device());
    auto const n = means.size(0);
    check_tensor(quats, "quats", at::kFloat, {n, 4}, means.device());
    check_tensor(scales, "scales", at::kFloat, {n, 3}, means.device());
    check_tensor(opacities, "opacities", at::kFloat, {n}, means.device());
    check_tensor(velocities, "velocities", at::kFloat, {n, 3}, means.device());
}

inline void check_render(at::Tensor const& means, at::Tensor const& quats, at::Tensor const& scales,
                         at::Tensor const& opacities, at::Tensor const& velocities, at::Tensor const& features,
                         at::Tensor const& origins, at::Tensor const& directions, at::Tensor const& delays,
                         at::Tensor const& rays, at::Tensor const& offsets, at::Tensor const& gaussians) {
    auto const device = means.device();
    auto const real = at::kFloat, whole = at::kLong;
    check_gaussians(means, quats, scales, opacities, velocities);
    check_tensor(features, "features", real, {means.size(0), -1}, device);
    TORCH_CHECK_VALUE(features.size(1) == 2 || features.size(1) == 3, "features has ", features.size(1),
                      " columns, but must have 3 (a camera's colour) or 2 (a lidar's intensity and ray drop)");
    check_tensor(directions, "directions", real, {-1, 3}, device);
    auto const r = directions.size(0);
    check_tensor(origins, "origins", real, {r, 3}, device);
    check_tensor(delays, "delays", real, {r}, device);
    check_tensor(rays, "rays", whole, {-1, -1}, device);
    check_tensor(offsets, "offsets", whole, {rays.size(0) + 1}, device);
    check_tensor(gaussians, "gaussians", whole, {-1}, device);
}

}  // namespace nurec
