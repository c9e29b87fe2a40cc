// SPDX-License-Identifier: Apache-2.0
// Rays and bundles of several views. One thread a ray.
#include "../common/cells.cuh"
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "params.h"

namespace nurec::cuda {
namespace {

__global__ void __maxnreg__(32) view_rays_kernel(Views p, RayArrays out) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    ViewedRays const& rays = p.rays;
    if (i >= rays.n) return;
    int64_t const view = rays.is_camera ? i / rays.pixels() : sweep_of(rays.sweeps, i);
    int64_t const local = rays.is_camera && !rays.own ? i - view * rays.pixels() : i;
    Trajectory<float> const& path = p.scene.rows[view].path;
    float const fraction = rays.fractions[rays.alike ? 0 : local];
    Ray<float> const ray = ray_at(path, sensor_at(path, fraction), load3(rays.directions, local), fraction);
    store3(out.origins, i, ray.r);
    store3(out.directions, i, ray.d);
    out.delays[i] = ray.dt;
}

// One warp a bundle of an image.
__global__ void patches_kernel(ViewedRays in, Bundles b, int64_t* rays) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x, bundle = i / BUNDLE_RAYS;
    if (bundle >= b.n) return;
    int const lane = int(i % BUNDLE_RAYS), each = b.columns * b.rows, patch = int(bundle % each);
    int const x = patch % b.columns * b.width + lane % b.width, y = patch / b.columns * b.height + lane / b.width;
    rays[i] = x < in.width && y < in.height ? bundle / each * in.pixels() + int64_t(y) * in.width + x : -1;
}

}  // namespace

void make_view_rays(Views const& p, RayArrays const& out, Queue const& queue) {
    if (p.rays.n) view_rays_kernel<<<blocks_for(p.rays.n), THREADS, 0, queue.stream>>>(p, out);
}

int64_t bundles_for(Views const& p) {
    ViewedRays const& in = p.rays;
    if (!in.is_camera) return most_bundles(in.sweeps);
    int64_t const columns = (in.width + in.bundle_width - 1) / in.bundle_width;
    return p.scene.views * columns * ((in.height + in.bundle_height - 1) / in.bundle_height);
}

Bundles view_bundles(Views const& p, int64_t* rays, Queue const& queue) {
    Bundles b = {};
    ViewedRays const& in = p.rays;
    b.is_camera = in.is_camera, b.n = bundles_for(p), b.rays = rays;
    if (!b.is_camera) {
        b.cells = in.sweeps.cells, b.cells.bands = in.sweeps.bands();
        auto* const first = queue.memory.array<int>(b.cells.bands + 1);
        auto* const bins = queue.memory.array<int>(2 * BINS * b.cells.bands);
        bundle_rays(in.sweeps, rays, first, bins, queue);
        b.first = first, b.bins = bins;
        return b;
    }
    b.width = in.bundle_width, b.height = in.bundle_height;
    b.columns = (in.width + b.width - 1) / b.width, b.rows = (in.height + b.height - 1) / b.height;
    patches_kernel<<<blocks_for(BUNDLE_RAYS * b.n), THREADS, 0, queue.stream>>>(in, b, rays);
    return b;
}

}  // namespace nurec::cuda
