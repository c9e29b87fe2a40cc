// SPDX-License-Identifier: Apache-2.0
// Rows of Gaussians: from parameters, and staged in shared memory a batch at a time.
#pragma once

#include "render.h"

namespace nurec::cuda {

constexpr int TILE_RAYS = 256;  // threads of a block, one a ray
constexpr int BATCH = 256;      // Gaussians that are staged together, one a thread

__device__ inline Vec3<float> load3(float const* a, int64_t i) {
    return {a[3 * i], a[3 * i + 1], a[3 * i + 2]};
}

__device__ inline void store3(float* a, int64_t i, Vec3<float> v) {
    a[3 * i] = v.x, a[3 * i + 1] = v.y, a[3 * i + 2] = v.z;
}

__device__ inline Quat<float> load_quat(float const* a, int64_t i) {
    return {a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]};
}

static __global__ void rows_kernel(RenderParams p) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.n_gaussians) return;
    Row row;
    row.frame = make_frame(load3(p.means, i), load_quat(p.quats, i), load3(p.scales, i), load3(p.velocities, i));
    row.opacity = p.opacities[i];
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
