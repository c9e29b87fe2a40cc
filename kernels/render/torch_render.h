// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::render and ::render_backward take and give on either device.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>

#include "../common/torch_gaussians.h"

namespace nurec {

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Ten = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor,
                       at::Tensor, at::Tensor>;

struct RenderTensors {
    GaussianTensors g;
    at::Tensor const &features, &origins, &directions, &delays, &rays, &offsets, &gaussians;
};

// Which backward kernels: 0, one for both sensors; 1, one a sensor; 2 more, by its own launch bounds; 4 more, with half
// the staging (cuda/backward_table.h). The CPU has one for all.
inline void check_backward(int64_t backward) {
    TORCH_CHECK_VALUE(backward == 0 || (backward > 0 && backward < 8 && backward % 2 == 1), "backward is ", backward,
                      ", but must be 0 or one of 1, 3, 5 and 7");
}

inline void check_render(RenderTensors const& in) {
    auto const device = in.g.means.device();
    auto const real = at::kFloat, whole = at::kLong;
    check_gaussians(in.g);
    auto const n = in.g.scales.size(0);
    check_tensor(in.features, "features", real, {n, -1}, device);
    auto const c = in.features.size(1);
    TORCH_CHECK_VALUE(c == 2 || c == 3, "features has ", c,
                      " columns, but must have 3 (a camera's colour) or 2 (a lidar's intensity and ray drop)");
    check_tensor(in.directions, "directions", real, {-1, 3}, device);
    auto const r = in.directions.size(0);
    check_tensor(in.origins, "origins", real, {r, 3}, device);
    check_tensor(in.delays, "delays", real, {r}, device);
    check_tensor(in.rays, "rays", whole, {-1, -1}, device);
    check_tensor(in.offsets, "offsets", whole, {in.rays.size(0) + 1}, device);
    check_tensor(in.gaussians, "gaussians", whole, {-1}, device);
    check_finite(in.features, "features");
    check_finite(in.directions, "directions");
    check_finite(in.origins, "origins");
    check_finite(in.delays, "delays");
    check_range(in.rays, "rays", -1, r);
    check_range(in.offsets, "offsets", 0, in.gaussians.size(0) + 1);
    check_ascends<int64_t>(in.offsets, "offsets");
    check_range(in.gaussians, "gaussians", 0, n);
}

// What the forward pass gave, and the gradients of it.
struct OutputTensors {
    at::Tensor const &out, &distance, &transmittance, &d_out;
    std::optional<at::Tensor> const& d_distance;  // nothing: nothing depends on the distance
    at::Tensor const& d_transmittance;

    at::Tensor d_distance_or_zeros() const { return d_distance ? *d_distance : at::zeros_like(distance); }
};

inline void check_outputs(RenderTensors const& in, OutputTensors const& o) {
    auto const r = in.directions.size(0), c = in.features.size(1);
    auto const check = [&](at::Tensor const& t, char const* name, std::initializer_list<int64_t> shape) {
        check_tensor(t, name, at::kFloat, shape, in.directions.device());
        check_finite(t, name);
    };
    check(o.out, "out", {r, c});
    check(o.distance, "distance", {r});
    check(o.transmittance, "transmittance", {r});
    check(o.d_out, "d_out", {r, c});
    if (o.d_distance) check(*o.d_distance, "d_distance", {r});
    check(o.d_transmittance, "d_transmittance", {r});
}

// Of rays that no tile holds: the drivers write the others.
inline Four empty_outputs(RenderTensors const& in) {
    auto const r = in.directions.size(0);
    auto const options = in.features.options();
    return {at::zeros({r, in.features.size(1)}, options), at::zeros({r}, options), at::ones({r}, options),
            at::zeros({r}, options)};
}

// Zeros, in the order of the inputs; rays that want no gradient have none.
inline Ten zero_gradients(RenderTensors const& in, bool ray_gradients) {
    auto const like = [](at::Tensor const& t) { return at::zeros_like(t); };
    auto const ray = [&](at::Tensor const& t) { return ray_gradients ? like(t) : at::empty({0}, t.options()); };
    GaussianTensors const& g = in.g;
    return {like(g.still_means), like(g.still_quats), like(g.means),     like(g.quats),   like(g.velocities),
            like(g.scales),      like(g.opacities),   like(in.features), ray(in.origins), ray(in.directions)};
}

inline float* writable(at::Tensor const& t) {
    return t.numel() ? t.mutable_data_ptr<float>() : nullptr;
}

// The backward drivers only read the forward pass's outputs.
inline float* readable(at::Tensor const& t) {
    return const_cast<float*>(t.const_data_ptr<float>());
}

inline GaussianGrads gaussian_grads(Ten const& d) {
    return {writable(std::get<0>(d)), writable(std::get<1>(d)), writable(std::get<2>(d)), writable(std::get<3>(d)),
            writable(std::get<4>(d)), writable(std::get<5>(d)), writable(std::get<6>(d))};
}

}  // namespace nurec
