// SPDX-License-Identifier: Apache-2.0
// One thread a ray. Each works out its own pose, also where all share one: waiting for memory hides that, with as many
// threads as there may be, 32 registers each.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "params.h"

namespace nurec::cuda {
namespace {

__global__ void __maxnreg__(32) rays_kernel(RayParams p) {
    __shared__ Trajectory<float> path;
    copy_numbers(path, p.path);
    __syncthreads();
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.n) return;
    float const fraction = p.fractions[p.alike ? 0 : i];
    Ray<float> const ray = ray_at(path, sensor_at(path, fraction), load3(p.directions, i), fraction);
    store3(p.origins, i, ray.r);
    store3(p.world, i, ray.d);
    p.delays[i] = ray.dt;
}

}  // namespace

void make_rays(RayParams const& p, Queue const& queue) {
    if (p.n) rays_kernel<<<blocks_for(p.n), THREADS, 0, queue.stream>>>(p);
}

}  // namespace nurec::cuda
