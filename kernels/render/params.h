// SPDX-License-Identifier: Apache-2.0
// Blending of each tile's Gaussians over its rays, and its gradients. All pointers are the device's.
//
// Letters: N Gaussians, R rays, A tiles of P rays, L entries of all tiles' lists, C features.
#pragma once

#include "../common/gaussians.h"
#include "../math/blend.cuh"
#include "../math/moments.cuh"
#include "../common/launch.cuh"

namespace nurec::cuda {

constexpr int MAX_FEATURES = 3;  // a camera's colour; a lidar has two, intensity and ray drop

struct alignas(16) Row {  // what rays need of a Gaussian, or the gradient of it
    Frame<float> frame;
    float opacity;
    float features[MAX_FEATURES];
};
static_assert(sizeof(Row) == 80);

struct alignas(16) MomentRow {  // the gradient of a Row as the split kernels add it up
    Moments<float> moments;
    float features[MAX_FEATURES];
};
static_assert(sizeof(MomentRow) == 64);

struct RenderParams {
    Gaussians g;
    int64_t n_features, n_rays, n_tiles, rays_per_tile;
    float const* features;     // [N, C]
    float const* origins;      // [R, 3] relative to the centre
    float const* directions;   // [R, 3] unit
    float const* delays;       // [R] seconds after the Gaussians' time
    int64_t const* rays;       // [A, P], -1 where a tile has fewer than P
    int64_t const* offsets;    // [A + 1]
    int64_t const* gaussians;  // [L] nearest first in each tile
    bool moving;               // origins or delays are not all zero
    Row* rows;                 // [N] working memory
};

struct RenderOutputs {
    float* features;       // [R, C]
    float* distance;       // [R]
    float* transmittance;  // [R]
    float* median;         // [R]
};

struct RenderGrads {
    float const* d_features;  // of the outputs
    float const* d_distance;  // null: has no gradient; for a camera's split kernels without those of rays
    float const* d_transmittance;
    Row* rows;           // [N] zeros: working memory of renderBackward
    MomentRow* moments;  // [N] zeros: that of the split kernels
    GaussianGrads g;
    float* features;
    float* origins;  // null: rays get no gradient
    float* directions;
};

void render_forward(RenderParams const& p, RenderOutputs const& out, cudaStream_t stream);
void render_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, cudaStream_t stream);

// The same by a kernel a sensor; `plan` is one of Plan's sums in backward_table.h.
void split_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, int plan,
                    cudaStream_t stream);
void camera_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, int plan,
                     cudaStream_t stream);
void lidar_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, int plan,
                    cudaStream_t stream);

}  // namespace nurec::cuda
