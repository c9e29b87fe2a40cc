// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../math/moments.cuh"
#include "render_params.h"

namespace nurec::cuda {

struct alignas(16) MomentRow {  // the gradient of a Row as the split kernels add it up
    Moments<float> moments;
    float features[MAX_FEATURES];
};
static_assert(sizeof(MomentRow) == 64);

struct Row;  // ../raster_tiles/rows.cuh

// Arrays where a backward pass adds up gradients of Gaussians; each kernel uses one of the two.
struct GradSums : RenderGrads {
    Row* rows;           // [N] zeros at first, of renderBackward_kernel
    MomentRow* moments;  // [N] zeros at first, of all other kernels
};

}  // namespace nurec::cuda
