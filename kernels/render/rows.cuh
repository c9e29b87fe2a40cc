// SPDX-License-Identifier: Apache-2.0
// Rows of Gaussians: from parameters, and staged in shared memory a batch at a time.
#pragma once

#include "../common/gaussians.cuh"
#include "params.h"

namespace nurec::cuda {

constexpr int TILE_RAYS = 256;  // threads of a block, one a ray
constexpr int BATCH = 256;      // Gaussians that are staged together, one a thread

static __global__ void rows_kernel(RenderParams p) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.g.n) return;
    Row row;
    row.frame = make_frame(mean_of(p.g, i), quat_of(p.g, i), load3(p.g.scales, i), velocity_of(p.g, i));
    row.opacity = p.g.opacities[i];
    for (int c = 0; c < MAX_FEATURES; ++c) row.features[c] = c < p.n_features ? p.features[p.n_features * i + c] : 0.f;
    p.rows[i] = row;
}

// The ray that this thread blends; -1: none.
__device__ inline int64_t my_ray(RenderParams const& p) {
    return threadIdx.x < p.rays_per_tile ? p.rays[blockIdx.x * p.rays_per_tile + threadIdx.x] : -1;
}

__device__ inline Ray<float> load_ray(RenderParams const& p, int64_t i) {
    if (i < 0) return {{0, 0, 1}, {0, 0, 0}, 0};
    if (!p.moving) return {load3(p.directions, i), {0, 0, 0}, 0};
    return {load3(p.directions, i), load3(p.origins, i), p.delays[i]};
}

// Copies 80 bytes as five vectors of 16.
__device__ inline void copy_row(Row& to, Row const& from) {
    auto const* a = reinterpret_cast<float4 const*>(&from);
    auto* b = reinterpret_cast<float4*>(&to);
#pragma unroll
    for (int k = 0; k < 5; ++k) b[k] = a[k];
}

}  // namespace nurec::cuda
