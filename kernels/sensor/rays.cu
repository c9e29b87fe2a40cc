// SPDX-License-Identifier: Apache-2.0
// A thread has some rays, 32 apart: pixels of a row are read together, so that most of them share a pose.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "rays.h"

namespace nurec::cuda {
namespace {

constexpr int RAYS_PER_THREAD = 4;  // of a thread

__global__ void make_rays_kernel(RayParams p) {
    wait_then_launch_dependents();
    __shared__ Trajectory<float> path;
    __shared__ float4 staged[THREADS / 32][24];
    copy_numbers(path, p.path);
    __syncthreads();
    int64_t const thread = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    int64_t const first = RAYS_PER_THREAD * (thread - threadIdx.x % 32) + threadIdx.x % 32;
    Vec3<float> directions[RAYS_PER_THREAD];
    float fractions[RAYS_PER_THREAD];
#pragma unroll
    for (int k = 0; k < RAYS_PER_THREAD; ++k) {
        int64_t const i = smaller(first + 32 * k, p.n - 1);
        directions[k] = load3(p.directions, i), fractions[k] = p.fractions[p.alike ? 0 : i];
    }
    Pose<float> pose = sensor_at(path, fractions[0]);
#pragma unroll
    for (int k = 0; k < RAYS_PER_THREAD; ++k) {
        int64_t const i = first + 32 * k;
        if (k && fractions[k] != fractions[k - 1]) pose = sensor_at(path, fractions[k]);
        Ray<float> const ray = ray_at(path, pose, directions[k], fractions[k]);
        if (p.origins) store3_together(p.origins, i, p.n, ray.r, staged[threadIdx.x / 32]);
        store3_together(p.world, i, p.n, ray.d, staged[threadIdx.x / 32]);
        if (i < p.n) p.delays[i] = ray.dt;
    }
}

}  // namespace

void make_rays(RayParams const& p, Queue const& queue) {
    if (p.n) launch_pdl(make_rays_kernel, blocks_for((p.n + RAYS_PER_THREAD - 1) / RAYS_PER_THREAD), THREADS, queue, p);
}

}  // namespace nurec::cuda
