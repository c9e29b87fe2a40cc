// SPDX-License-Identifier: Apache-2.0
// Rays as kernels read them.
#pragma once

#include "../common/triples.cuh"
#include "../math/blend.cuh"
#include "render_params.h"

namespace nurec::cuda {

// The ray that this thread blends; -1: none.
__device__ inline int64_t my_ray(RenderParams const& p) {
    return threadIdx.x < p.rays_per_tile ? p.rays[blockIdx.x * p.rays_per_tile + threadIdx.x] : -1;
}

__device__ inline Ray<float> load_ray(RenderParams const& p, int64_t i) {
    if (i < 0) return {{0, 0, 1}, {0, 0, 0}, 0};
    if (!p.moving) return {load3(p.directions, i), {0, 0, 0}, 0};
    return {load3(p.directions, i), load3(p.origins, i), p.delays[i]};
}

__device__ inline RangeTarget<float> load_target(RenderParams const& p, int64_t i) {
    if (i < 0 || !p.targets) return NO_RANGE_TARGET;
    float2 const both = reinterpret_cast<float2 const*>(p.targets)[i];
    return {both.x, both.y};
}

}  // namespace nurec::cuda
