// SPDX-License-Identifier: Apache-2.0
// renderBackward_kernel serves both sensors, as NVIDIA's Nsight post on NuRec describes its starting point: the sensor
// is a run-time branch, so registers and shared memory are those of the larger of the two. The option split_backward
// takes it apart.
//
// Front to back: the sum behind a Gaussian is the output of the forward pass minus the Gaussians already passed. A
// Gaussian's gradient is added up over a warp's rays by shuffles, then over warps and tiles by atomics.
#include "../common/warp.cuh"
#include "backward.cuh"

namespace nurec::cuda {
namespace {

struct Slopes {  // dL/d(output) of one ray, and the sum behind
    float features[MAX_FEATURES], distance, behind;
    float T = 1;
};

__device__ Slopes load_slopes(Staged const& p, RenderOutputs const& out, GradSums const& d, int64_t i) {
    Slopes s = {};
    s.T = 1;
    if (i < 0) return s;
    s.distance = d.d_distance[i];
    s.behind = out.transmittance[i] * d.d_transmittance[i] + out.distance[i] * s.distance;
    for (int c = 0; c < MAX_FEATURES; ++c) {
        if (c >= p.n_features) continue;
        s.features[c] = d.d_features[p.n_features * i + c];
        s.behind += out.features[p.n_features * i + c] * s.features[c];
    }
    return s;
}

// Value k of the warp's sums goes out through lane k, so that one instruction adds a whole row.
template <int FEATURES, bool MOVING>
__device__ void add_row(Row* to, Row const& mine) {
    constexpr int n = ROW_FEATURES + FEATURES;
    auto const* values = reinterpret_cast<float const*>(&mine);
    int const lane = int(threadIdx.x & 31);
    float out = 0;
#pragma unroll
    for (int k = 0; k < n; ++k) {
        bool const moves = k >= ROW_DRIFT && k < ROW_DRIFT + 3;
        if (k == ROW_K || (moves && !MOVING)) continue;  // Frame::k has no gradient
        float const sum = warp_sum(values[k]);
        out = lane == k ? sum : out;
    }
    if (lane < n && out != 0) atomicAdd(reinterpret_cast<float*>(to) + lane, out);
}

struct RaySums {
    Vec3<float> d = {0, 0, 0}, r = {0, 0, 0};
};

// One Gaussian against the warp's rays. FEATURES and MOVING follow from the sensor. The target is read where it counts,
// not kept: a few registers less.
template <int FEATURES, bool MOVING, bool RAYS>
__device__ void gradient_of(Staged const& p, int64_t i, Row const& g, Ray<float> const& ray, Slopes& s, bool& open,
                            Row* sums, RaySums& ray_sums) {
    Response<float> const at = respond<MOVING>(g.frame, g.opacity, ray);
    float const before = s.T;
    float const w = blend_weight(at.alpha, at.t, s.T, open);
    if (!__any_sync(~0u, w > 0)) return;
    Row d = {};
    if (w > 0) {
        RangeTarget<float> const target = load_target(p, i);
        float slope = range_residual(at.t, target) * s.distance;
        for (int c = 0; c < FEATURES; ++c) slope += g.features[c] * s.features[c];
        float const d_alpha = blend_backward(at.alpha, w, before, slope, s.behind);
        float const d_t = range_residual_backward(at.t, target, w * s.distance);
        ResponseGrad<float> const r = respond_backward(g.frame, g.opacity, at, d_alpha, d_t);
        d.frame.M = {r.e.x * ray.d, r.e.y * ray.d, r.e.z * ray.d};
        d.frame.g = r.g;
        if (MOVING) {
            d.frame.M.r0 = d.frame.M.r0 + r.g.x * ray.r;
            d.frame.M.r1 = d.frame.M.r1 + r.g.y * ray.r;
            d.frame.M.r2 = d.frame.M.r2 + r.g.z * ray.r;
            d.frame.drift = ray.dt * r.g;
        }
        d.opacity = r.opacity;
        for (int c = 0; c < FEATURES; ++c) d.features[c] = w * s.features[c];
        if (RAYS) {
            ray_sums.d = ray_sums.d + transposed_times(g.frame.M, r.e);
            ray_sums.r = ray_sums.r + transposed_times(g.frame.M, r.g);
        }
    }
    add_row<FEATURES, MOVING>(sums, d);
}

template <bool RAYS>
__global__ void __launch_bounds__(TILE_RAYS) renderBackward_kernel(Staged p, RenderOutputs out, GradSums d) {
    __shared__ Row batch[BATCH];
    __shared__ int64_t members[BATCH];
    int64_t const i = my_ray(p), begin = p.offsets[blockIdx.x], end = p.offsets[blockIdx.x + 1];
    Ray<float> const ray = load_ray(p, i);
    Slopes s = load_slopes(p, out, d, i);
    RaySums ray_sums;
    bool open = i >= 0;
    for (int64_t first = begin; first < end; first += BATCH) {
        if (__syncthreads_count(open) == 0) break;
        int const n = int(end - first < BATCH ? end - first : BATCH);
        if (int(threadIdx.x) < n) {
            members[threadIdx.x] = p.gaussians[first + threadIdx.x];
            copy_row(batch[threadIdx.x], p.rows[members[threadIdx.x]]);
        }
        __syncthreads();
        for (int k = 0; k < n; ++k) {
            if (!__any_sync(~0u, open)) break;
            Row* const sums = d.rows + members[k];
            if (p.n_features == 3) {  // a camera
                if (p.moving)
                    gradient_of<3, true, RAYS>(p, i, batch[k], ray, s, open, sums, ray_sums);
                else
                    gradient_of<3, false, RAYS>(p, i, batch[k], ray, s, open, sums, ray_sums);
            } else {
                gradient_of<2, true, RAYS>(p, i, batch[k], ray, s, open, sums, ray_sums);
            }
        }
    }
    if (!RAYS || i < 0) return;
    store3(d.directions, i, ray_sums.d);
    store3(d.origins, i, ray_sums.r);
}

// From the gradients of rows to those of the Gaussians' parameters.
__global__ void unpack_row_grads_kernel(Staged p, GradSums d) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.g.n) return;
    Row const& sum = d.rows[i];
    GaussianGrad<float> const g = make_frame_backward(mean_of(p.g, i), quat_of(p.g, i), load3(p.g.scales, i),
                                                      velocity_of(p.g, i), p.rows[i].frame, sum.frame);
    store_placed(d.g, p.g.n_still, i, g.mean, g.q, g.v);
    store3(d.g.scales, i, g.s);
    d.g.opacities[i] = sum.opacity;
    for (int c = 0; c < p.n_features; ++c) d.features[p.n_features * i + c] = sum.features[c];
}

}  // namespace

void shared_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, cudaStream_t stream) {
    fill_rows(p, stream);
    auto const blocks = static_cast<unsigned>(p.n_tiles);
    if (p.n_tiles && d.origins) renderBackward_kernel<true><<<blocks, TILE_RAYS, 0, stream>>>(p, out, d);
    if (p.n_tiles && !d.origins) renderBackward_kernel<false><<<blocks, TILE_RAYS, 0, stream>>>(p, out, d);
    unpack_row_grads_kernel<<<blocks_for(p.g.n), THREADS, 0, stream>>>(p, d);
}

}  // namespace nurec::cuda
