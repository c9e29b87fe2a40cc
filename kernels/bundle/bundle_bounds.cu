// SPDX-License-Identifier: Apache-2.0
// Bounds of bundles and of runs of them (math/bundle.cuh), and where a lidar's bundles lie by azimuth.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "bounds.cuh"

namespace nurec::cuda {
namespace {

constexpr unsigned WHOLE_WARP = ~0u;

__device__ float sum_of(float a) {
    for (int step = 16; step > 0; step /= 2) a += __shfl_xor_sync(WHOLE_WARP, a, step);
    return a;
}

__device__ float most_of(float a) {
    for (int step = 16; step > 0; step /= 2) a = larger(a, __shfl_xor_sync(WHOLE_WARP, a, step));
    return a;
}

__device__ Vec3<float> sum_of(Vec3<float> a) {
    return {sum_of(a.x), sum_of(a.y), sum_of(a.z)};
}

__device__ Vec3<float> unit(Vec3<float> a) {
    return (1 / larger(sqrtf(dot(a, a)), 1e-30f)) * a;
}

struct Run {  // of consecutive bundles
    int64_t begin, end;
};

// Calls function(ray, there, rank) for the rays of a run; `rank` counts those that are there.
template <class Function>
__device__ int for_rays(BundleParams const& p, Run run, Function const& function) {
    int const lane = int(threadIdx.x) % 32;
    int before = 0;
    for (int64_t k = run.begin; k < run.end; ++k) {
        int64_t const ray = p.bundles.rays[BUNDLE_RAYS * k + lane];
        unsigned const all = __ballot_sync(WHOLE_WARP, ray >= 0);
        if (ray >= 0) function(ray, before + __popc(all & ((1u << lane) - 1)));
        before += __popc(all);
    }
    return before;
}

// By one warp. The axes follow the way from the first quarter of the rays to the last, along rows or columns.
__device__ Bundle<float> bound_of(BundleParams const& p, Run run) {
    Vec3<float> const zero = {0, 0, 0};
    Vec3<float> d = zero, r = zero, way = zero;
    float dt = 0;
    int const n = for_rays(p, run, [&](int64_t ray, int) {
        d = d + load3(p.directions, ray), r = r + load3(p.origins, ray), dt += p.delays[ray];
    });
    Vec3<float> const c = unit(sum_of(d));
    for_rays(p, run, [&](int64_t ray, int rank) {
        if (4 * rank < n) way = way - load3(p.directions, ray);
        if (4 * (n - 1 - rank) < n) way = way + load3(p.directions, ray);
    });
    float const share = n ? 1.f / float(n) : 0.f, far = 1e30f;
    r = share * sum_of(r), dt = share * sum_of(dt), way = sum_of(way);
    Vec3<float> across = way - dot(way, c) * c;
    if (!(dot(across, across) > 1e-16f)) across = fabsf(c.z) < 0.9f ? cross(c, {0, 0, 1}) : cross(c, {1, 0, 0});
    Vec3<float> const x = unit(across), y = cross(c, x);
    float u1 = -far, u0 = -far, v1 = -far, v0 = -far, rho = 0, tau = 0, ahead = far;
    for_rays(p, run, [&](int64_t ray, int) {
        Vec3<float> const a = load3(p.directions, ray), off = load3(p.origins, ray) - r;
        float const depth = dot(a, c), u = dot(a, x) / depth, v = dot(a, y) / depth;
        u1 = larger(u1, u), u0 = larger(u0, -u), v1 = larger(v1, v), v0 = larger(v0, -v);
        ahead = smaller(ahead, depth);
        rho = larger(rho, sqrtf(dot(off, off))), tau = larger(tau, fabsf(p.delays[ray] - dt));
    });
    u1 = most_of(u1), u0 = -most_of(u0), v1 = most_of(v1), v0 = -most_of(v0), ahead = -most_of(-ahead);
    rho = most_of(rho), tau = most_of(tau);
    float const um = 0.5f * (u0 + u1), vm = 0.5f * (v0 + v1), spare = 1e-6f;
    float const known = !n ? 0.f : ahead > 0.1f ? 1.f : 2.f;  // 2: too wide for a pyramid
    return {c + um * x + vm * y, (0.5f * (u1 - u0) + spare) * x, (0.5f * (v1 - v0) + spare) * y, r, rho, dt, tau,
            known};
}

__global__ void bounds_kernel(BundleParams p, BundleWork work) {
    int64_t const k = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32;
    if (k >= p.bundles.n) return;
    Bundle<float> const found = bound_of(p, {k, k + 1});
    if (threadIdx.x % 32 == 0) work.bounds[k] = found;
}

// The row whose runs have a place; `rows_of`: none.
__device__ int row_with(Bundles const& b, int64_t place) {
    int low = 0, high = rows_of(b);
    while (low < high) {
        int const middle = (low + high) / 2;
        if (runs_begin(b, middle + 1) <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

__global__ void runs_kernel(BundleParams p, BundleWork work) {
    int64_t const place = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32;
    Bundles const& b = p.bundles;
    int const row = row_with(b, place);
    if (row >= rows_of(b)) return;
    int const begin = row_begin(b, row) + int(place - runs_begin(b, row)) * RUN, end = row_begin(b, row + 1);
    if (begin >= end) return;
    Bundle<float> const found = bound_of(p, {begin, begin + RUN < end ? begin + RUN : end});
    if (threadIdx.x % 32 == 0) work.runs[place] = found;
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

int64_t most_runs(Bundles const& b) {
    return b.n / RUN + (b.is_camera ? b.rows : b.cells.bands) + 1;
}

void bound_bundles(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    Bundles const& b = p.bundles;
    if (!b.n) return;
    bounds_kernel<<<blocks_for(32 * b.n), THREADS, 0, queue.stream>>>(p, work);
    runs_kernel<<<blocks_for(32 * most_runs(b)), THREADS, 0, queue.stream>>>(p, work);
    if (!b.is_camera) bins_kernel<<<blocks_for(2 * BINS * b.cells.bands), THREADS, 0, queue.stream>>>(b, work.bins);
}

}  // namespace nurec::cuda
