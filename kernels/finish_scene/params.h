// SPDX-License-Identifier: Apache-2.0
// The end of the backward pass of a step's views, in one pass over the Gaussians: from what rays told of them
// (../render_parts) to the gradients of what is stored. All pointers are the device's.
//
// Letters: N Gaussians, S that stand still and behind them A that move, N = S + A; V views, each at a time of its own;
// K nodes.
#pragma once

#include "../common/device.h"
#include "../common/gaussians.h"
#include "../math/view_row.cuh"
#include "../nudge_gradient/params.h"
#include "../render_parts/params.h"

namespace nurec::cuda {

constexpr int MOST_TOLD = 16;  // V

// What the rays of a view tell: a tensor of so many numbers, N rows of moments and behind them a byte a Gaussian.
constexpr int64_t told_floats(int64_t n) {
    return MOMENT_FLOATS * n + (n + 3) / 4;
}

struct ToldView {
    ViewRow<float> const* row;
    MomentRow const* moments;  // [N], of which those not seen hold anything; null: nothing depends on the view
    uint8_t const* seen;       // [N]
    bool by_lidar, moving;     // moving: as RenderParams has it
    bool nudged;               // its nudge gets a gradient
};

struct ToldViews {
    int64_t n;  // V
    ToldView view[MOST_TOLD];
};

struct ToldScene {
    int64_t n, still, nodes;       // N, S, K
    float const* means;            // [N, 3] metres, of which the first S are read
    float const* quats;            // [N, 4] unit, likewise
    float const* moved_means;      // [V, A, 3] world
    float const* moved_quats;      // [V, A, 4]
    float const* velocities;       // [V, A, 3]
    float const* scales;           // [N, 3]
    float const* opacities;        // [N] for cameras
    float const* lidar_opacities;  // [N] for lidars; the same array: they have none of their own
    float const* lidar;            // [N, 2]
    float const* stored_quats;     // [N, 4] of any length; null: gradients are those of activations
};

// A gradient that comes from elsewhere, an array or one number for all. Null: none does.
struct GivenNumbers {
    float const* at;
    bool one;
};

// Of what moves, as one view sees it.
struct GivenMoved {
    float const *means, *quats, *velocities;  // [A, 3], [A, 4], [A, 3]
    float const* rotations;                   // [K, 4] of the nodes
};

struct GivenGrads {
    float const *still_means, *still_quats;                  // [S, 3], [S, 4]
    GivenNumbers scales, opacities, lidar_opacities, lidar;  // [N, 3], [N], [N], [N, 2]
    GivenMoved view[MOST_TOLD];
};

// Null: nothing depends on it. Of means and quats those that move are left to who knows how they were moved.
struct FoundGrads {
    int64_t columns;         // of logits below, 2 or 3; 0: gradients are those of activations
    float* means;            // [N, 3]
    float* quats;            // [N, 4]
    float* scales;           // [N, 3], or of their logarithms
    float* opacities;        // [N], or of their logits
    float* lidar_opacities;  // [N]; null, too, where they are a column of the next, and where they are the camera's
    float* lidar;            // [N, 2], or of logits [N, columns]
    float *moved_means, *moved_quats, *velocities;
    float* rotations;  // [V, K, 4], which are what is given
    float* nudges;     // [V, 6]; null: there are none
};

void finish_scene(ToldScene const& scene, ToldViews const& told, GivenGrads const& given, FoundGrads const& out,
                  Queue const& queue);

// What rays tell of each Gaussian, to `moments` and `seen` of `p.g.n`; and of a camera, if it is not null, the gradient
// of features [N, 3].
void tell_parts(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, Parts const& parts,
                MomentRow* moments, uint8_t* seen, Queue const& queue);

}  // namespace nurec::cuda
