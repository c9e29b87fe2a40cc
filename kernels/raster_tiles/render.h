// SPDX-License-Identifier: Apache-2.0
// The renderer of block tiles: blending of each tile's Gaussians over its rays, and its gradients.
#pragma once

#include "../project/render_params.h"

namespace nurec {

// Which backward kernels CUDA takes (backward_table.h); the CPU has one for all.
struct BackwardPlan {
    bool split;          // one a sensor instead of one for both
    bool launch_bounds;  // these by their own bounds
    bool half_staging;   // these with half the rows in shared memory
};

namespace cpu {

void render_forward(RenderParams const& p, RenderOutputs const& out);
void render_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d);

}  // namespace cpu

namespace cuda {

void render_forward(RenderParams const& p, RenderOutputs const& out, Queue const& queue);
void render_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, BackwardPlan plan,
                     Queue const& queue);

}  // namespace cuda
}  // namespace nurec
