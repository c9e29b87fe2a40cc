// SPDX-License-Identifier: Apache-2.0
// Tensors as the CPU drivers of blending take them.
#pragma once

#include "render_cpu.h"
#include "torch_render.h"

namespace nurec {

inline cpu::Inputs make_inputs(RenderTensors const& in, bool moving) {
    return {arrays_of(in.g),
            in.features.size(1),
            in.directions.size(0),
            in.rays.size(0),
            in.rays.size(1),
            in.features.const_data_ptr<float>(),
            in.origins.const_data_ptr<float>(),
            in.directions.const_data_ptr<float>(),
            in.delays.const_data_ptr<float>(),
            in.rays.const_data_ptr<int64_t>(),
            in.offsets.const_data_ptr<int64_t>(),
            in.gaussians.const_data_ptr<int64_t>(),
            moving};
}

}  // namespace nurec
