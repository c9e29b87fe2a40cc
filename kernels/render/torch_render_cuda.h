// SPDX-License-Identifier: Apache-2.0
// Tensors as the CUDA drivers of blending take them.
#pragma once

#include "params.h"
#include "../common/torch_cuda_memory.h"
#include "torch_render.h"

namespace nurec {

constexpr int64_t BLOCK_RAYS = 256;  // rays of a tile at most

inline cuda::RenderParams make_params(RenderTensors const& in, bool moving, Memory& memory) {
    TORCH_CHECK_VALUE(in.rays.size(1) <= BLOCK_RAYS, "rays has ", in.rays.size(1),
                      " rays a tile, but must have at most ", BLOCK_RAYS);
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
            moving,
            memory.allocator().array<cuda::Row>(in.g.scales.size(0))};
}

}  // namespace nurec
