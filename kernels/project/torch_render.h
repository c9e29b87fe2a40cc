// SPDX-License-Identifier: Apache-2.0
// Arguments and outputs of nurec_lite::render and ::render_backward, on either device.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <tuple>
#include <vector>

#include "../common/torch_gaussians.h"
#include "render_params.h"

namespace nurec {

struct RenderTensors {
    GaussianTensors g;
    at::Tensor const &features, &origins, &directions, &delays, &targets, &rays, &offsets, &gaussians, &visible;
};

// Lists as nurec_lite.native.operators.shared has them: GaussianArrays, RayArrays and Lists.
inline RenderTensors render_tensors(at::TensorList gaussians, at::Tensor const& features, at::TensorList rays,
                                    at::TensorList lists, at::Tensor const& view) {
    check_group(rays, "rays", 4, "origins, directions, delays, targets");
    check_group(lists, "lists", 4, "rays, offsets, gaussians, visible");
    return {gaussians_of(gaussians, view),
            features,
            rays[0],
            rays[1],
            rays[2],
            rays[3],
            lists[0],
            lists[1],
            lists[2],
            lists[3]};
}

// Rays of warp tiles may leave origins out, which are only read for their gradients, and have lists of int32.
inline void check_render(RenderTensors const& in, bool of_warp_tiles = false) {
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
    check_tensor(in.origins, "origins", real, {of_warp_tiles && !in.origins.size(0) ? 0 : r, 3}, device);
    check_tensor(in.delays, "delays", real, {r}, device);
    check_tensor(in.targets, "targets", real, {in.targets.size(0) ? r : 0, 2}, device);
    TORCH_CHECK_VALUE(!in.targets.size(0) || c == 2, "targets has ", r, " rows, but a camera's rays have none");
    check_tensor(in.rays, "rays", whole, {-1, -1}, device);
    TORCH_CHECK_VALUE(device.is_cpu() || in.rays.size(1) <= cuda::TILE_RAYS, "rays has ", in.rays.size(1),
                      " rays a tile, but must have at most ", cuda::TILE_RAYS);
    check_tensor(in.offsets, "offsets", whole, {in.rays.size(0) + 1}, device);
    check_tensor(in.gaussians, "gaussians", of_warp_tiles ? at::kInt : whole, {-1}, device);
    check_tensor(in.visible, "visible", at::kByte, {in.visible.size(0) ? n : 0}, device);
    check_finite(in.features, "features");
    check_finite(in.directions, "directions");
    check_finite(in.origins, "origins");
    check_finite(in.delays, "delays");
    check_finite(in.targets, "targets");
    check_range(in.rays, "rays", -1, r);
    check_range(in.offsets, "offsets", 0, in.gaussians.size(0) + 1);
    check_ascends<int64_t>(in.offsets, "offsets");
    check_range(in.gaussians, "gaussians", 0, n);
}

inline RenderParams params_of(RenderTensors const& in, bool moving, MaybeTensor const& blocks = {}) {
    bool const of_warp_tiles = in.gaussians.scalar_type() == at::kInt;
    return {arrays_of(in.g),
            in.features.size(1),
            in.directions.size(0),
            in.rays.size(0),
            in.rays.size(1),
            in.features.const_data_ptr<float>(),
            in.origins.size(0) ? in.origins.const_data_ptr<float>() : nullptr,
            in.directions.const_data_ptr<float>(),
            in.delays.const_data_ptr<float>(),
            in.targets.size(0) ? in.targets.const_data_ptr<float>() : nullptr,
            in.rays.const_data_ptr<int64_t>(),
            in.offsets.const_data_ptr<int64_t>(),
            of_warp_tiles ? nullptr : in.gaussians.const_data_ptr<int64_t>(),
            of_warp_tiles ? in.gaussians.const_data_ptr<int>() : nullptr,
            moving,
            &row_of(in.g.view)->path,
            in.visible.size(0) ? in.visible.const_data_ptr<uint8_t>() : nullptr,
            checked_blocks(blocks, in.g.scales.size(0), in.features.device())};
}

// ---- outputs of the forward pass

using Blended = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;  // out, distance, transmittance, median

// Outputs of rays that no tile holds: the drivers write the others.
inline Blended empty_outputs(RenderTensors const& in) {
    auto const r = in.directions.size(0);
    auto const options = in.features.options();
    return {at::zeros({r, in.features.size(1)}, options), at::zeros({r}, options), at::ones({r}, options),
            at::zeros({r}, options)};
}

// Outputs without values, if each ray is in a list: the drivers write them all.
inline Blended unwritten_outputs(int64_t rays, int64_t features, at::TensorOptions const& options) {
    auto const floats = [&](at::IntArrayRef shape) { return at::empty(shape, options); };
    return {floats({rays, features}), floats({rays}), floats({rays}), floats({rays})};
}

inline RenderOutputs written(Blended const& t) {
    auto const& [out, distance, transmittance, median] = t;
    return {out.mutable_data_ptr<float>(), distance.mutable_data_ptr<float>(), transmittance.mutable_data_ptr<float>(),
            median.mutable_data_ptr<float>()};
}

// ---- gradients

// Outputs of the forward pass, and their gradients.
struct OutputTensors {
    at::Tensor const &out, &distance, &transmittance, &d_out;
    std::optional<at::Tensor> const& d_distance;  // nothing: nothing depends on the distance
    at::Tensor const& d_transmittance;
};

// `outputs` as nurec_lite.native.operators.shared.Outputs lists them.
inline OutputTensors checked_outputs(RenderTensors const& in, at::TensorList outputs, at::Tensor const& d_out,
                                     std::optional<at::Tensor> const& d_distance, at::Tensor const& d_transmittance) {
    check_group(outputs, "outputs", 3, "out, distance, transmittance");
    auto const r = in.directions.size(0), c = in.features.size(1);
    auto const check = [&](at::Tensor const& t, char const* name, std::initializer_list<int64_t> shape) {
        check_tensor(t, name, at::kFloat, shape, in.directions.device());
        check_finite(t, name);
    };
    check(outputs[0], "out", {r, c});
    check(outputs[1], "distance", {r});
    check(outputs[2], "transmittance", {r});
    check(d_out, "d_out", {r, c});
    if (d_distance) check(*d_distance, "d_distance", {r});
    check(d_transmittance, "d_transmittance", {r});
    return {outputs[0], outputs[1], outputs[2], d_out, d_distance, d_transmittance};
}

// The backward drivers only read them.
inline RenderOutputs outputs_of(OutputTensors const& o) {
    auto const readable = [](at::Tensor const& t) { return const_cast<float*>(t.const_data_ptr<float>()); };
    return {readable(o.out), readable(o.distance), readable(o.transmittance), nullptr};
}

using Gradients = std::tuple<std::vector<at::Tensor>, at::Tensor, std::vector<at::Tensor>>;

// Gradients of the Gaussians and of the features, in the order of the inputs, and of ray origins and directions; these
// are none unless asked for.
struct GradientTensors {
    at::Tensor still_means, still_quats, means, quats, velocities, scales, opacities, features;
    std::optional<std::pair<at::Tensor, at::Tensor>> rays;

    Gradients all() const {
        std::vector<at::Tensor> of_rays;
        if (rays) of_rays = {rays->first, rays->second};
        return {{still_means, still_quats, means, quats, velocities, scales, opacities}, features, of_rays};
    }
};

inline GradientTensors zero_gradients(RenderTensors const& in, bool of_rays) {
    GaussianTensors const& g = in.g;
    auto const of = [](at::Tensor const& t) { return at::zeros_like(t); };
    GradientTensors d = {of(g.still_means), of(g.still_quats), of(g.means),     of(g.quats), of(g.velocities),
                         of(g.scales),      of(g.opacities),   of(in.features), std::nullopt};
    TORCH_CHECK_VALUE(!of_rays || in.origins.size(0) == in.directions.size(0),
                      "origins has no rows, but gradients of rays are asked for");
    if (of_rays) d.rays = {of(in.origins), of(in.directions)};
    return d;
}

// `d_distance`: undefined where a driver is to do without.
inline RenderGrads grads_of(OutputTensors const& o, at::Tensor const& d_distance, GradientTensors const& d) {
    auto const w = [](at::Tensor const& t) { return t.numel() ? t.mutable_data_ptr<float>() : nullptr; };
    return {o.d_out.const_data_ptr<float>(),
            d_distance.defined() ? d_distance.const_data_ptr<float>() : nullptr,
            o.d_transmittance.const_data_ptr<float>(),
            {w(d.still_means), w(d.still_quats), w(d.means), w(d.quats), w(d.velocities), w(d.scales), w(d.opacities)},
            w(d.features),
            d.rays ? w(d.rays->first) : nullptr,
            d.rays ? w(d.rays->second) : nullptr};
}

}  // namespace nurec
