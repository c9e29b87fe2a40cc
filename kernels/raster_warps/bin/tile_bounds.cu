// SPDX-License-Identifier: Apache-2.0
// Bounds a lidar's warp tiles by pyramids, and their beams by slabs within these (math/ray_pyramid.cuh).
#include "../../common/launch.cuh"
#include "../../common/triples.cuh"
#include "../../common/warp.cuh"
#include "bounds.cuh"

namespace nurec::cuda {
namespace {

__device__ Vec3<float> sum_of(Vec3<float> a) {
    return {warp_sum(a.x), warp_sum(a.y), warp_sum(a.z)};
}

__device__ Vec3<float> unit(Vec3<float> a) {
    return (1 / larger(sqrtf(dot(a, a)), 1e-30f)) * a;
}

constexpr int HALF = WARP_TILE_RAYS / 2, SLABS_OF_HALF = BEAM_SLABS / 2;

// Returns which slab of its half a ray is in. The lanes of a warp have rays by elevation. The widest gaps separate
// slabs, unless another gap is four times as wide. z: sine of the elevation, finite also on lanes without a ray.
__device__ int slab_of_ray(bool there, float z) {
    int const lane = int(threadIdx.x % HALF), first = int(threadIdx.x % 32) - lane;
    float const before = __shfl_sync(ALL_LANES, z, first + (lane ? lane - 1 : 0));
    float const gap = there ? z - before : 0.f, widest = warp_max<HALF>(gap);
    int wider = 0;
    for (int k = 0; k < HALF; ++k) {
        float const other = __shfl_sync(ALL_LANES, gap, first + k);
        wider += other > gap || (other == gap && k < lane);
    }
    unsigned const begins = ballot_of_group<HALF>(4 * gap > widest && wider < SLABS_OF_HALF - 1);
    return __popc(begins & ((2u << lane) - 1));
}

// Returns the slab of a half's rays, in coordinates of the pyramid.
__device__ BeamSlab<float> bound_slab(bool mine, float x, float y, float margin_x, float margin_y) {
    float const far = 1e30f;
    float const x1 = warp_max<HALF>(mine ? x : -far), x0 = -warp_max<HALF>(mine ? -x : -far);
    float const y1 = warp_max<HALF>(mine ? y : -far), y0 = -warp_max<HALF>(mine ? -y : -far);
    if (x0 > x1) return {0, -1, 0, 0};
    return {0.5f * (x0 + x1), 0.5f * (x1 - x0) + margin_x, 0.5f * (y0 + y1), 0.5f * (y1 - y0) + margin_y};
}

// Returns a ray's weight in the sum that gives the direction along rows: azimuth relative to the mean of its slab.
__device__ float along_slabs(bool there, int slab, float azimuth) {
    float part = 0;
    for (int k = 0; k < SLABS_OF_HALF; ++k) {
        bool const mine = there && slab == k;
        int const n = __popc(ballot_of_group<HALF>(mine));
        float const mean = warp_sum<HALF>(mine ? azimuth : 0.f) / larger(float(n), 1.f);
        if (mine) part = azimuth - mean;
    }
    return part;
}

struct PyramidAndSlabs {
    RayPyramid<float> warp_tile;
    BeamSlab<float> slab;  // the first lanes of a half have those of the half
};

// Bounds a warp tile. One warp calls it, one lane a ray. The first axis goes along beams.
__device__ PyramidAndSlabs pyramid_of(BinParams const& p, int64_t warp_tile) {
    int64_t const ray = p.warp_tiles.rays[WARP_TILE_RAYS * warp_tile + threadIdx.x % 32];
    bool const there = ray >= 0;
    int const n = __popc(__ballot_sync(ALL_LANES, there));
    Vec3<float> const zero = {0, 0, 0}, d = there ? load3(p.directions, ray) : zero;
    Vec3<float> const local = there ? load3(p.warp_tiles.cells.directions, ray) : zero;
    float const delay = there ? p.delays[ray] : 0.f, share = n ? 1.f / float(n) : 0.f, far = 1e30f;
    Vec3<float> const c = unit(sum_of(d));
    float const dt = share * warp_sum(delay);
    int const own = slab_of_ray(there, local.z);
    Vec3<float> const way = sum_of(along_slabs(there, own, atan2f(local.y, local.x)) * d);
    Vec3<float> across = way - dot(way, c) * c;
    if (!(dot(across, across) > 1e-16f)) across = fabsf(c.z) < 0.9f ? cross(c, {0, 0, 1}) : cross(c, {1, 0, 0});
    Vec3<float> const x = unit(across), y = cross(c, x);
    float const depth = dot(d, c), u = dot(d, x) / depth, v = dot(d, y) / depth;
    float const u1 = warp_max(there ? u : -far), u0 = -warp_max(there ? -u : -far);
    float const v1 = warp_max(there ? v : -far), v0 = -warp_max(there ? -v : -far);
    float const ahead = -warp_max(there ? -depth : -far);
    float const um = 0.5f * (u0 + u1), vm = 0.5f * (v0 + v1), margin = 1e-6f;
    float const x_half = 0.5f * (u1 - u0) + margin, y_half = 0.5f * (v1 - v0) + margin;
    // how delays go along x, by least squares
    float const place = there ? (u - um) / x_half : 0.f, middle = share * warp_sum(place);
    float const from = there ? place - middle : 0.f, inverse = 1 / larger(warp_sum(from * from), 1e-20f);
    float const w = inverse * warp_sum(from * (delay - dt));
    float const tau = warp_max(there ? fabsf(delay - dt - from * w) : 0.f);
    float const known = !n ? 0.f : ahead > 0.1f ? 1.f : 2.f;  // 2: too wide for a pyramid
    PyramidAndSlabs found = {{c + um * x + vm * y, x_half * x, y_half * y, dt - middle * w, w, tau, known, {}}, {}};
    for (int k = 0; k < SLABS_OF_HALF; ++k) {
        BeamSlab<float> const slab =
            bound_slab(there && own == k, place, (v - vm) / y_half, margin / x_half, margin / y_half);
        if (int(threadIdx.x % HALF) == k) found.slab = slab;
    }
    return found;
}

__device__ void store_pyramid(BinWork const& work, int64_t n, int64_t k, PyramidAndSlabs const& found) {
    int const lane = int(threadIdx.x % 32), place = lane % HALF;
    for (int q = 0; q < PYRAMID_VECTORS; ++q)
        if (lane == q) work.bounds[n * q + k] = reinterpret_cast<float4 const*>(&found.warp_tile)[q];
    if (place < SLABS_OF_HALF) work.slabs[n * (SLABS_OF_HALF * (lane / HALF) + place) + k] = found.slab;
}

// It reads nothing that the previous kernel writes, and overwrites nothing that an earlier kernel reads. So it waits
// only at its end, and its blocks start while that kernel's last blocks still run.
__global__ void bound_warp_tiles_kernel(BinParams p, BinWork work) {
    launch_dependents();
    int64_t const k = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32;
    if (k < p.warp_tiles.n) store_pyramid(work, p.warp_tiles.n, k, pyramid_of(p, k));
    grid_dependency_wait();
}

}  // namespace

void bound_warp_tiles(BinParams const& p, BinWork const& work, Queue const& queue) {
    int64_t const n = p.warp_tiles.n;
    if (n) launch_pdl(bound_warp_tiles_kernel, blocks_for(32 * n), THREADS, queue, p, work);
}

}  // namespace nurec::cuda
