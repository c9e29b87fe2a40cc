// SPDX-License-Identifier: Apache-2.0
// The epilogue of the backward pass of a step's views, in one pass over the Gaussians: from the moments that the views
// accumulated (../blend) to the gradients of the stored parameters. All pointers are the device's.
//
// Letters: N Gaussians, S of them static, followed by A dynamic ones, N = S + A; V views, each at its own time; K
// nodes.
#pragma once

#include "../../common/blocks.h"
#include "../../common/device.h"
#include "../../common/gaussians.h"
#include "../../math/view_row.cuh"
#include "../../sensor/pose_gradient.h"
#include "../blend/segments.h"

namespace nurec::cuda {

constexpr int MAX_BACKWARD_VIEWS = 16;  // V

// Returns the floats of a view's gradient buffer: N rows of moments, followed by a byte for each Gaussian. The buffers
// of several views may follow one another: each begins on a multiple of 16 bytes.
constexpr int64_t grad_accum_floats(int64_t n) {
    return MOMENT_FLOATS * n + (n + 15) / 16 * 4;
}

struct BackwardView {
    ViewRow<float> const* row;
    MomentRow const* moments;  // [N], unwritten for Gaussians that are not seen; null: nothing depends on the view
    uint8_t const* seen;       // [N]
    bool by_lidar, moving;     // moving: as RenderParams has it
    bool wants_pose_grad;      // its pose delta gets a gradient
};

struct BackwardViews {
    int64_t n;  // V
    BackwardView view[MAX_BACKWARD_VIEWS];
};

struct BackwardScene {
    int64_t n, still, nodes;       // N, S, K
    float const* means;            // [N, 3] metres; the first S are read
    float const* quats;            // [N, 4] unit; the first S are read
    float const* moved_means;      // [V, A, 3] world
    float const* moved_quats;      // [V, A, 4]
    float const* velocities;       // [V, A, 3]
    float const* scales;           // [N, 3]
    float const* opacities;        // [N] for cameras
    float const* lidar_opacities;  // [N] for lidars; the same array: they have none of their own
    float const* lidar;            // [N, 2]
    float const* stored_quats;     // [N, 4] of any length; null: gradients are those of activations
};

// An upstream gradient that does not come through rays: an array, or one number for all. Null: there is none.
struct UpstreamValues {
    float const* at;
    bool one;
};

// Upstream gradients of the dynamic Gaussians of one view.
struct UpstreamMoved {
    float const *means, *quats, *velocities;  // [A, 3], [A, 4], [A, 3]
    float const* rotations;                   // [K, 4] of the nodes
};

struct UpstreamGrads {
    float const *still_means, *still_quats;                    // [S, 3], [S, 4]
    UpstreamValues scales, opacities, lidar_opacities, lidar;  // [N, 3], [N], [N], [N, 2]
    UpstreamMoved view[MAX_BACKWARD_VIEWS];
    bool seen_only;        // those of shapes, opacities and lidar count only where a mean has a gradient
    VisibleBlocks blocks;  // of the others no gradient is written
};

// Null: nothing depends on it. Means and quats of dynamic Gaussians are left to the backward pass of the interpolation.
struct EpilogueGrads {
    int64_t columns;         // of logits below, 2 or 3; 0: gradients are those of activations
    float* means;            // [N, 3]
    float* quats;            // [N, 4]
    float* scales;           // [N, 3], or of their logarithms
    float* opacities;        // [N], or of their logits
    float* lidar_opacities;  // [N]; null, too, where they are a column of the next, and where they are the camera's
    float* lidar;            // [N, 2], or of logits [N, columns]
    float *moved_means, *moved_quats, *velocities;
    float* rotations;   // [V, K, 4]; copies of the upstream gradients
    float* pose_grads;  // [V, 6]; null: there are none
};

void gaussian_backward(BackwardScene const& scene, BackwardViews const& views, UpstreamGrads const& given,
                       EpilogueGrads const& out, Queue const& queue);

// Accumulates the gradients of a view's rays: moments and a `seen` byte for each Gaussian of `p.g.n`. Of a camera it
// also writes the gradient of features [N, 3], unless d.features is null.
void render_backward_accumulate(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d,
                                Segments const& segments, MomentRow* moments, uint8_t* seen, Queue const& queue);

}  // namespace nurec::cuda
