// SPDX-License-Identifier: Apache-2.0
// The state of a ray in the backward pass, for both renderers, and which gradients a kernel computes.
#pragma once

#include "../common/triples.cuh"
#include "../math/blend.cuh"
#include "load_rays.cuh"
#include "render_params.h"

namespace nurec::cuda {

// Variants of a kernel. PATCHES: a warp takes 8x4 of a tile's 16x16 pixels, or 8x8, so fewer Gaussians reach it than
// 16x2. MOVING: rays have origins and delays. DISTANCE: the distance has a gradient. RAYS: rays get gradients.
template <int FEATURES_, bool PATCHES_, bool MOVING_, bool DISTANCE_, bool RAYS_>
struct Needs {
    static constexpr int FEATURES = FEATURES_, SUMS = (MOVING_ ? 13 : 10) + FEATURES_;
    static constexpr bool PATCHES = PATCHES_, MOVING = MOVING_, DISTANCE = DISTANCE_, RAYS = RAYS_;
};

template <bool MOVING, bool DISTANCE, bool RAYS>
using CameraNeeds = Needs<3, true, MOVING, DISTANCE, RAYS>;

template <bool RAYS>
using LidarNeeds = Needs<2, false, true, true, RAYS>;

template <class N>
struct OneRay {
    Ray<float> ray;
    float features[N::FEATURES], distance;  // dL/d(output)
    float behind, T;                        // the sum behind the blended Gaussians, and the transmittance
    bool open;
    Vec3<float> d_direction, d_origin;
    RangeTarget<float> target;
};

// dL/dw and dL/dt of a ray's sum of distances; `d` is dL/d(the sum). A camera's rays have no targets.
template <class N>
__device__ float distance_slope(float d, RangeTarget<float> target, float t) {
    return N::DISTANCE ? d * (N::FEATURES == 2 ? range_residual(t, target) : t) : 0.f;
}

template <class N>
__device__ float distance_backward(float d, RangeTarget<float> target, float t, float w) {
    return !N::DISTANCE ? 0.f : N::FEATURES == 2 ? range_residual_backward(t, target, w * d) : w * d;
}

template <class N>
__device__ OneRay<N> load_one(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, int64_t i) {
    OneRay<N> one = {};
    one.open = i >= 0, one.T = 1, one.ray.d.z = 1;
    if (i < 0) return one;
    one.ray.d = load3(p.directions, i);
    if (N::MOVING) one.ray.dt = p.delays[i];
    if (N::MOVING && p.origins) one.ray.r = load3(p.origins, i);
    if (N::FEATURES == 2) one.target = load_target(p, i);
    one.behind = out.transmittance[i] * d.d_transmittance[i];
    if (N::DISTANCE) one.distance = d.d_distance[i], one.behind += out.distance[i] * one.distance;
#pragma unroll
    for (int c = 0; c < N::FEATURES; ++c) {
        one.features[c] = d.d_features[N::FEATURES * i + c];
        one.behind += out.features[N::FEATURES * i + c] * one.features[c];
    }
    return one;
}

}  // namespace nurec::cuda
