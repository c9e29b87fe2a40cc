// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../math/moments.cuh"
#include "params.h"

namespace nurec::cuda {

struct alignas(16) MomentRow {  // the gradient of a Row as the split kernels add it up
    Moments<float> moments;
    float features[MAX_FEATURES];
};
static_assert(sizeof(MomentRow) == 64);

}  // namespace nurec::cuda
