// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../project/torch_render.h"
#include "render.h"

namespace nurec {

inline BackwardPlan checked_plan(bool split, bool launch_bounds, bool half_staging) {
    TORCH_CHECK_VALUE(split || !(launch_bounds || half_staging),
                      "launch_bounds and half_staging are about the kernels of split, which is false");
    return {split, launch_bounds, half_staging};
}

}  // namespace nurec
