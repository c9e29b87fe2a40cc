// SPDX-License-Identifier: Apache-2.0
// Bounds of bundles (math/bundle.cuh), and where a lidar's bundles lie by azimuth.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "../common/warp.cuh"
#include "bounds.cuh"

namespace nurec::cuda {
namespace {

__device__ Vec3<float> sum_of(Vec3<float> a) {
    return {warp_sum(a.x), warp_sum(a.y), warp_sum(a.z)};
}

__device__ Vec3<float> unit(Vec3<float> a) {
    return (1 / larger(sqrtf(dot(a, a)), 1e-30f)) * a;
}

// By one warp, one lane a ray. The axes follow the way from the first quarter of the rays to the last, along rows or
// columns.
__device__ Bundle<float> bound_of(BundleParams const& p, int64_t bundle) {
    int const lane = int(threadIdx.x) % 32;
    int64_t const ray = p.bundles.rays[BUNDLE_RAYS * bundle + lane];
    bool const there = ray >= 0;
    unsigned const all = __ballot_sync(ALL_LANES, there);
    int const n = __popc(all), rank = __popc(all & ((1u << lane) - 1));
    Vec3<float> const zero = {0, 0, 0}, d = there ? load3(p.directions, ray) : zero;
    Vec3<float> const origin = there ? load3(p.origins, ray) : zero;
    float const delay = there ? p.delays[ray] : 0.f, share = n ? 1.f / float(n) : 0.f, far = 1e30f;
    Vec3<float> const c = unit(sum_of(d)), r = share * sum_of(origin);
    float const dt = share * warp_sum(delay);
    float const sign = float(there && 4 * (n - 1 - rank) < n) - float(there && 4 * rank < n);
    Vec3<float> const way = sum_of(sign * d);
    Vec3<float> across = way - dot(way, c) * c;
    if (!(dot(across, across) > 1e-16f)) across = fabsf(c.z) < 0.9f ? cross(c, {0, 0, 1}) : cross(c, {1, 0, 0});
    Vec3<float> const x = unit(across), y = cross(c, x), off = origin - r;
    float const depth = dot(d, c), u = dot(d, x) / depth, v = dot(d, y) / depth;
    float const u1 = warp_max(there ? u : -far), u0 = -warp_max(there ? -u : -far);
    float const v1 = warp_max(there ? v : -far), v0 = -warp_max(there ? -v : -far);
    float const ahead = -warp_max(there ? -depth : -far), rho = warp_max(there ? sqrtf(dot(off, off)) : 0.f);
    float const tau = warp_max(there ? fabsf(delay - dt) : 0.f);
    float const um = 0.5f * (u0 + u1), vm = 0.5f * (v0 + v1), spare = 1e-6f;
    float const known = !n ? 0.f : ahead > 0.1f ? 1.f : 2.f;  // 2: too wide for a pyramid
    return {
        c + um * x + vm * y, (0.5f * (u1 - u0) + spare) * x, (0.5f * (v1 - v0) + spare) * y, r, rho, dt, tau, known};
}

__global__ void bounds_kernel(BundleParams p, BundleWork work) {
    int64_t const k = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32;
    if (k >= p.bundles.n) return;
    Bundle<float> const found = bound_of(p, k);
    if (threadIdx.x % 32 == 0) work.bounds[k] = found;
}

// For each band and each of BINS azimuths: the first bundle that reaches beyond the bin's begin, and the first one that
// begins beyond its end.
__global__ void bins_kernel(Bundles b, int* bins) {
    int const i = int(blockIdx.x * blockDim.x + threadIdx.x), band = i / (2 * BINS), side = i % 2;
    if (band >= b.cells.bands) return;
    float const edge = float(i / 2 % BINS + side) / float(BINS) * float(2 * PI) - float(PI);
    int begin = b.first[band], end = b.first[band + 1];
    while (begin < end) {
        int const middle = (begin + end) / 2;
        float const* at = b.azimuths + 2 * middle;
        if (side ? at[0] <= edge + SPARE : at[1] < edge - SPARE)
            begin = middle + 1;
        else
            end = middle;
    }
    bins[i] = begin;
}

}  // namespace

void bound_bundles(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    Bundles const& b = p.bundles;
    if (!b.n) return;
    bounds_kernel<<<blocks_for(32 * b.n), THREADS, 0, queue.stream>>>(p, work);
    if (!b.is_camera) bins_kernel<<<blocks_for(2 * BINS * b.cells.bands), THREADS, 0, queue.stream>>>(b, work.bins);
}

}  // namespace nurec::cuda
