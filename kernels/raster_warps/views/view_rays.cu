// SPDX-License-Identifier: Apache-2.0
// Rays and warp tiles of several views. One thread a ray.
#include "../../common/cells.cuh"
#include "../../common/launch.cuh"
#include "../../common/triples.cuh"
#include "views.h"

namespace nurec::cuda {
namespace {

__global__ void __maxnreg__(32) make_view_rays_kernel(Views p, RayArrays out) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    ViewedRays const& rays = p.rays;
    if (i >= rays.n) return;
    int64_t const view = rays.is_camera ? i / rays.pixels() : sweep_of(rays.sweeps, i);
    int64_t const local = rays.is_camera && !rays.own ? i - view * rays.pixels() : i;
    Trajectory<float> const& path = p.scene.rows[view].path;
    float const fraction = rays.fractions[rays.alike ? 0 : local];
    Ray<float> const ray = ray_at(path, sensor_at(path, fraction), load3(rays.directions, local), fraction);
    store3(out.directions, i, ray.d);
    out.delays[i] = ray.dt;
}

// One warp a warp tile of an image.
__global__ void fill_image_tiles_kernel(ViewedRays in, WarpTiles b, int64_t* rays) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x, warp_tile = i / WARP_TILE_RAYS;
    if (warp_tile >= b.n) return;
    int const lane = int(i % WARP_TILE_RAYS), within = int(warp_tile % SUPER_TILE_LISTS),
              across = super_tiles_for(b.columns);
    int64_t const each = b.super_tiles_of_image(), view = warp_tile / SUPER_TILE_LISTS / each;
    int const super_tile = int(warp_tile / SUPER_TILE_LISTS % each);
    int const column = super_tile % across * SUPER_TILE_SIDE + within % SUPER_TILE_SIDE;
    int const row = super_tile / across * SUPER_TILE_SIDE + within / SUPER_TILE_SIDE;
    int const x = column * b.width + lane % b.width, y = row * b.height + lane / b.width;
    rays[i] = x < in.width && y < in.height ? view * in.pixels() + int64_t(y) * in.width + x : -1;
}

// Grid of an image.
WarpTiles grid_of(ViewedRays const& in) {
    WarpTiles b = {};
    b.width = in.tile_width, b.height = in.tile_height;
    b.columns = (in.width + b.width - 1) / b.width, b.rows = (in.height + b.height - 1) / b.height;
    return b;
}

}  // namespace

void make_view_rays(Views const& p, RayArrays const& out, Queue const& queue) {
    if (p.rays.n) make_view_rays_kernel<<<blocks_for(p.rays.n), THREADS, 0, queue.stream>>>(p, out);
}

int64_t warp_tile_count(Views const& p) {
    ViewedRays const& in = p.rays;
    if (!in.is_camera) return max_warp_tiles(in.sweeps);
    return SUPER_TILE_LISTS * p.scene.views * grid_of(in).super_tiles_of_image();
}

WarpTiles make_view_tiles(Views const& p, int64_t* rays, Queue const& queue) {
    ViewedRays const& in = p.rays;
    WarpTiles b = in.is_camera ? grid_of(in) : WarpTiles{};
    b.is_camera = in.is_camera, b.n = warp_tile_count(p), b.rays = rays;
    if (!b.is_camera) {
        b.cells = in.sweeps.cells, b.cells.bands = in.sweeps.bands();
        auto* const first = queue.memory.array<int>(b.cells.bands + 1);
        auto* const bins = queue.memory.array<int>(2 * AZIMUTH_BINS * b.cells.bands);
        auto* const heights = queue.memory.array<float>(2 * b.cells.bands);
        group_sweep_rays(in.sweeps, {rays, first, bins, heights}, queue);
        b.first = first, b.bins = bins, b.heights = heights;
        return b;
    }
    fill_image_tiles_kernel<<<blocks_for(WARP_TILE_RAYS * b.n), THREADS, 0, queue.stream>>>(in, b, rays);
    return b;
}

}  // namespace nurec::cuda
