// SPDX-License-Identifier: Apache-2.0
// Sentences for operators that are called wrongly.
//
// What tensors hold is looked at, too, on the CPU: that is cheap beside rendering. On CUDA the host would have to wait
// for the device in every call, so there it happens only if the environment has NUREC_LITE_CHECK=1.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "../cpu/check.h"

namespace nurec {

constexpr int64_t MAX_SIDE = 1 << 16;  // of an image or of a grid: products of two stay far from overflowing

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

inline void check_count(int64_t value, char const* name, int64_t most) {
    TORCH_CHECK_VALUE(value > 0 && value <= most, name, " is ", value, ", but must be 1 to ", most);
}

inline void check_image(int64_t width, int64_t height, int64_t tile) {
    check_count(width, "width", MAX_SIDE);
    check_count(height, "height", MAX_SIDE);
    check_count(tile, "tile", MAX_SIDE);
}

// Where the values can be read; nothing where they are not to be.
inline std::optional<at::Tensor> values_of(at::Tensor const& t) {
    if (t.device().is_cpu()) return t;
    char const* const asked = std::getenv("NUREC_LITE_CHECK");
    return asked && std::string_view(asked) == "1" ? std::optional<at::Tensor>(t.cpu()) : std::nullopt;
}

// Row of the first value that breaks a rule, for messages.
inline int64_t row_of(at::Tensor const& t, int64_t place) {
    return place / (t.numel() / t.size(0));
}

inline void check_finite(at::Tensor const& t, char const* name) {
    auto const host = values_of(t);
    if (!host) return;
    auto const* values = host->const_data_ptr<float>();
    int64_t const place = cpu::first_not_finite(values, host->numel());
    TORCH_CHECK_VALUE(place < 0, name, " holds ", values[place], " in row ", row_of(t, place), ", but must be finite");
}

inline void check_positive(at::Tensor const& t, char const* name) {
    auto const host = values_of(t);
    if (!host) return;
    auto const* values = host->const_data_ptr<float>();
    int64_t const place = cpu::first_not_positive(values, host->numel());
    TORCH_CHECK_VALUE(place < 0, name, " holds ", values[place], " in row ", row_of(t, place), ", but must be above 0");
}

// low <= values < high.
inline void check_range(at::Tensor const& t, char const* name, int64_t low, int64_t high) {
    auto const host = values_of(t);
    if (!host) return;
    auto const* values = host->const_data_ptr<int64_t>();
    int64_t const place = cpu::first_outside(values, host->numel(), low, high);
    TORCH_CHECK_VALUE(place < 0, name, " holds ", values[place], " in row ", row_of(t, place),
                      ", but must be at least ", low, " and below ", high);
}

template <class T>
void check_ascends(at::Tensor const& t, char const* name) {
    auto const host = values_of(t);
    if (!host) return;
    int64_t const place = cpu::first_descent(host->const_data_ptr<T>(), host->numel());
    TORCH_CHECK_VALUE(place < 0, name, " falls in row ", place, ", but must ascend");
}

inline void check_gaussians(at::Tensor const& means, at::Tensor const& quats, at::Tensor const& scales,
                            at::Tensor const& opacities, at::Tensor const& velocities) {
    check_tensor(means, "means", at::kFloat, {-1, 3}, means.device());
    auto const n = means.size(0);
    check_tensor(quats, "quats", at::kFloat, {n, 4}, means.device());
    check_tensor(scales, "scales", at::kFloat, {n, 3}, means.device());
    check_tensor(opacities, "opacities", at::kFloat, {n}, means.device());
    check_tensor(velocities, "velocities", at::kFloat, {n, 3}, means.device());
    check_finite(means, "means");
    check_finite(quats, "quats");
    check_finite(scales, "scales");
    check_positive(scales, "scales");
    check_finite(opacities, "opacities");
    check_finite(velocities, "velocities");
}

// The grid over a lidar's sphere and the directions of its rays.
inline void check_cells(at::Tensor const& directions, at::Tensor const& edges, int64_t columns, at::Device device) {
    check_tensor(directions, "directions", at::kFloat, {-1, 3}, device);
    check_tensor(edges, "edges", at::kFloat, {-1}, device);
    check_count(columns, "columns", MAX_SIDE);
    check_finite(directions, "directions");
    check_finite(edges, "edges");
    check_ascends<float>(edges, "edges");
}

inline void check_projection(at::Tensor const& low, at::Tensor const& high, at::Tensor const& index) {
    check_tensor(index, "index", at::kLong, {-1}, index.device());
    check_tensor(low, "low", at::kFloat, {index.size(0), 2}, index.device());
    check_tensor(high, "high", at::kFloat, {index.size(0), 2}, index.device());
    check_finite(low, "low");
    check_finite(high, "high");
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
    check_finite(features, "features");
    check_finite(directions, "directions");
    check_finite(origins, "origins");
    check_finite(delays, "delays");
    check_range(rays, "rays", -1, r);
    check_range(offsets, "offsets", 0, gaussians.size(0) + 1);
    check_ascends<int64_t>(offsets, "offsets");
    check_range(gaussians, "gaussians", 0, means.size(0));
}

// What the forward pass gave, and the gradients of it.
inline void check_outputs(at::Tensor const& features, at::Tensor const& directions, at::Tensor const& out,
                          at::Tensor const& distance, at::Tensor const& transmittance, at::Tensor const& d_out,
                          at::Tensor const& d_distance, at::Tensor const& d_transmittance) {
    auto const r = directions.size(0), c = features.size(1);
    auto const check = [&](at::Tensor const& t, char const* name, std::initializer_list<int64_t> shape) {
        check_tensor(t, name, at::kFloat, shape, directions.device());
        check_finite(t, name);
    };
    check(out, "out", {r, c});
    check(distance, "distance", {r});
    check(transmittance, "transmittance", {r});
    check(d_out, "d_out", {r, c});
    check(d_distance, "d_distance", {r});
    check(d_transmittance, "d_transmittance", {r});
}

}  // namespace nurec
