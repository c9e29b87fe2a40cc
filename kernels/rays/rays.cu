// SPDX-License-Identifier: Apache-2.0
// One thread a ray. Each works out its own pose, also where all share one: waiting for memory hides that.
#include "params.h"

#include "../common/triples.cuh"

namespace nurec::cuda {
namespace {

__global__ void rays_kernel(RayParams p) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.n) return;
    float const fraction = p.fractions[p.alike ? 0 : i];
    Ray<float> const ray = ray_at(p.path, sensor_at(p.path, fraction), load3(p.directions, i), fraction);
    store3(p.origins, i, ray.r);
    store3(p.world, i, ray.d);
    p.delays[i] = ray.dt;
}

}  // namespace

void make_rays(RayParams const& p, cudaStream_t stream) {
    if (p.n) rays_kernel<<<blocks_for(p.n), THREADS, 0, stream>>>(p);
}

}  // namespace nurec::cuda
