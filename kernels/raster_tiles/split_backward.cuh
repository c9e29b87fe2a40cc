// SPDX-License-Identifier: Apache-2.0
// The backward pass of one sensor, which the option split_backward takes out of renderBackward_kernel: the same
// formulas with that sensor's outputs, loads and sums alone. Gradients of Gaussians are added up as moments
// (math/moments.cuh), 13 to 16 numbers, over a thread's rays in registers, over a warp's by halves, over warps and
// tiles by atomics.
//
// A block takes a tile's rays or, with fewer threads, a part of them (blockIdx.y).
#pragma once

#include <atomic>

#include "../common/warp.cuh"
#include "../project/ray_state.cuh"
#include "backward.cuh"
#include "backward_table.h"

namespace nurec::cuda {

// The n-th ray of a tile, neighbours in the image for the lanes of a warp; -1: none.
template <class N>
__device__ int64_t ray_of(Staged const& p, int n) {
    int const patch = n / 32, x = n % 8 + 8 * (patch / 4), y = n % 32 / 8 + 4 * (patch % 4);
    int const slot = N::PATCHES ? 16 * y + x : n;
    return slot < p.rays_per_tile ? p.rays[blockIdx.x * p.rays_per_tile + slot] : -1;
}

template <class L, bool MEMBERS = L::MEMBERS>
struct Batch {
    Row rows[L::ROWS];
    int members[L::ROWS];
};

template <class L>
struct Batch<L, false> {
    Row rows[L::ROWS];
};

template <class L>
__device__ void stage(Row const* rows, int64_t const* list, int n, Batch<L>& batch) {
#pragma unroll 1  // else the compiler keeps several rows in registers
    for (int k = int(threadIdx.x); k < n; k += L::THREADS) {
        int64_t const i = list[k];
        copy_row(batch.rows[k], rows[i]);
        if constexpr (L::MEMBERS) batch.members[k] = int(i);
    }
}

// Adds the gradient of one Gaussian from one ray that blended it with weight w.
template <class N>
__device__ void add_gradient(Row const& g, Response<float> const& at, float w, float before, OneRay<N>& one,
                             MomentRow& sum) {
    float slope = distance_slope<N>(one.distance, one.target, at.t);
#pragma unroll
    for (int c = 0; c < N::FEATURES; ++c) {
        slope += g.features[c] * one.features[c];
        sum.features[c] += w * one.features[c];
    }
    float const d_alpha = blend_backward(at.alpha, w, before, slope, one.behind);
    float const d_t = distance_backward<N>(one.distance, one.target, at.t, w);
    RayMoments<float> const a = ray_moments<N::DISTANCE>(g.frame, g.opacity, at, d_alpha, d_t);
    add_moments<N::MOVING, N::DISTANCE>(a, at.e, one.ray.dt, sum.moments);
    if (!N::RAYS) return;
    one.d_direction = one.d_direction + transposed_times(g.frame.M, at.t * a.w + a.n);
    one.d_origin = one.d_origin + transposed_times(g.frame.M, a.w);
}

// Place of the k-th sum in a MomentRow: the whole row, without the drift of static Gaussians.
template <class N>
__device__ int place_of(int k) {
    return N::MOVING || k < MOMENT_DRIFT ? k : k + 3;
}

template <class N>
__device__ void add_row(float* to, MomentRow const& mine) {
    int const lane = int(threadIdx.x & 31), k = summed_value<N::SUMS>(lane);
    auto const* all = reinterpret_cast<float const*>(&mine);
    float values[N::SUMS];
#pragma unroll
    for (int j = 0; j < N::SUMS; ++j) values[j] = all[place_of<N>(j)];
    float const sum = sums_by_halves(values, lane);
    if (k >= 0 && sum != 0) atomicAdd(to + place_of<N>(k), sum);
}

// The k-th Gaussian of a batch against the rays of a warp; false when all of them have ended.
template <class N, class L>
__device__ bool blend_one(Batch<L> const& batch, int64_t const* list, int k, OneRay<N> (&rays)[L::RAYS],
                          MomentRow* sums) {
    Row const& g = batch.rows[k];
    Response<float> at[L::RAYS];
    float w[L::RAYS], before[L::RAYS];
    bool touched = false, open = false;
#pragma unroll
    for (int j = 0; j < L::RAYS; ++j) {
        bool const was_open = rays[j].open;
        before[j] = rays[j].T;
        at[j] = respond<N::MOVING>(g.frame, g.opacity, rays[j].ray);
        w[j] = blend_weight(at[j].alpha, at[j].t, rays[j].T, rays[j].open);
        touched |= w[j] > 0 || was_open != rays[j].open;
        open |= rays[j].open;
    }
    if (!__any_sync(ALL_LANES, touched)) return true;
    MomentRow sum = {};
#pragma unroll
    for (int j = 0; j < L::RAYS; ++j)
        if (w[j] > 0) add_gradient<N>(g, at[j], w[j], before[j], rays[j], sum);
    MomentRow* to = sums;
    if constexpr (L::MEMBERS)
        to += batch.members[k];
    else
        to += list[k];
    add_row<N>(reinterpret_cast<float*>(to), sum);
    return __any_sync(ALL_LANES, open);
}

// Which of the next AHEAD Gaussians of n reach a ray of the warp, a bit each. On a captured sweep a warp passes five of
// six by: tested together, they do not wait for one another. Rows after the n-th are undefined and not counted.
template <class N, class L>
__device__ unsigned reaching(Batch<L> const& batch, int k, int n, OneRay<N> const (&rays)[L::RAYS]) {
    static_assert(L::ROWS % L::AHEAD == 0 && L::AHEAD <= 32);
    unsigned found = 0;
#pragma unroll
    for (int v = 0; v < L::AHEAD; ++v) {
        Row const& g = batch.rows[k + v];
        bool seen = false;
#pragma unroll
        for (int j = 0; j < L::RAYS; ++j) {
            Response<float> const at = respond<N::MOVING>(g.frame, g.opacity, rays[j].ray);
            seen |= rays[j].open & reaches(at.alpha, at.t);
        }
        found |= unsigned(__any_sync(ALL_LANES, seen & (k + v < n))) << v;
    }
    return found;
}

// The next AHEAD Gaussians of n; false when all rays of the warp have ended.
template <class N, class L>
__device__ bool blend_next(Batch<L> const& batch, int64_t const* list, int k, int n, OneRay<N> (&rays)[L::RAYS],
                           MomentRow* sums) {
    if constexpr (L::AHEAD == 1) {
        return blend_one<N, L>(batch, list, k, rays, sums);
    } else {
        bool going = true;
        for (unsigned left = reaching<N, L>(batch, k, n, rays); left && going; left &= left - 1)
            going = blend_one<N, L>(batch, list, k + __ffs(int(left)) - 1, rays, sums);
        return going;
    }
}

template <class N, class L>
__device__ void backward_block(Staged const& p, RenderOutputs const& out, GradSums const& d) {
    __shared__ Batch<L> batch;
    int64_t const* list = p.gaussians + p.offsets[blockIdx.x];
    int left = int(p.offsets[blockIdx.x + 1] - p.offsets[blockIdx.x]);
    int const lane = int(threadIdx.x) % 32, warp = int(blockIdx.y) * (L::THREADS / 32) + int(threadIdx.x) / 32;
    OneRay<N> rays[L::RAYS];
    bool open = false;
#pragma unroll
    for (int j = 0; j < L::RAYS; ++j) {
        rays[j] = load_one<N>(p, out, d, ray_of<N>(p, 32 * (L::RAYS * warp + j) + lane));
        open |= rays[j].open;
    }
    for (; left > 0; left -= L::ROWS, list += L::ROWS) {
        if (!__syncthreads_or(open)) break;
        int const n = left < L::ROWS ? left : L::ROWS;
        stage<L>(p.rows, list, n, batch);
        __syncthreads();
        bool going = __any_sync(ALL_LANES, open);
        for (int k = 0; k < n && going; k += L::AHEAD) going = blend_next<N, L>(batch, list, k, n, rays, d.moments);
        open = going;
    }
#pragma unroll
    for (int j = 0; j < (N::RAYS ? L::RAYS : 0); ++j) {
        int64_t const i = ray_of<N>(p, 32 * (L::RAYS * warp + j) + lane);
        if (i < 0) continue;
        store3(d.directions, i, rays[j].d_direction);
        store3(d.origins, i, rays[j].d_origin);
    }
}

template <class L>
dim3 grid_of(Staged const& p) {
    static_assert(TILE_RAYS % (L::THREADS * L::RAYS) == 0 && L::THREADS % 32 == 0);
    return dim3(static_cast<unsigned>(p.n_tiles), TILE_RAYS / (L::THREADS * L::RAYS));
}

using Kernel = void (*)(Staged, RenderOutputs, GradSums);

// Launches KERNEL; with half the staging it first asks, once a device, for the largest share of the common memory of
// L1 and shared memory that shared memory can get.
template <Kernel KERNEL, class L>
void launch_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, cudaStream_t stream) {
    static std::atomic<uint64_t> asked{0};  // a bit a device
    if (!p.n_tiles) return;
    int device = 0;
    if (!L::MEMBERS && cudaGetDevice(&device) == cudaSuccess && !(asked.fetch_or(1ull << device) >> device & 1)) {
        cudaFuncSetCacheConfig(KERNEL, cudaFuncCachePreferShared);  // older architectures
        cudaFuncSetAttribute(KERNEL, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    }
    KERNEL<<<grid_of<L>(p), L::THREADS, 0, stream>>>(p, out, d);
}

}  // namespace nurec::cuda
