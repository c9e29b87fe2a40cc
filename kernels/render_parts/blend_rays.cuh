// SPDX-License-Identifier: Apache-2.0
// A warp blends a list of Gaussians, or a part of one, over the rays of its bundle, one lane a ray.
#pragma once

#include "../render/rays.cuh"
#include "parts.cuh"

namespace nurec::cuda {

// A ray as staged rows see it.
struct Sight {
    int64_t i;  // -1: none
    Vec3<float> d;
    float dt;
};

template <bool MOVING>
__device__ Sight sight_of(RenderParams const& p, Work const& w) {
    int64_t const i = ray_of(p, w);
    if (i < 0) return {i, {0, 0, 1}, 0};
    return {i, load3(p.directions, i), MOVING ? p.delays[i] : 0.f};
}

struct Met {  // of a Gaussian by a ray
    float alpha, t;
};

template <bool MOVING, int C>
__device__ Met meet(PartRow<MOVING, C> const& g, Sight const& ray) {
    Passing<float> const at = pass(g.frame, ray.d, ray.dt);
    return {at.alpha, at.t};
}

// Calls function(row, met) for the entries of a part, as long as going() holds for a lane. AHEAD responses are found
// together, which do not wait for one another.
template <bool MOVING, int C, int AHEAD, class Going, class Function>
__device__ void for_rows(float const* rows, Work const& w, Sight const& ray, Going const& going,
                         Function const& function) {
    struct RowBatch {
        PartRow<MOVING, C> rows[32];
    };
    __shared__ RowBatch batches[WARPS];
    RowBatch& batch = batches[threadIdx.x / 32];
    auto const* all = reinterpret_cast<PartRow<MOVING, C> const*>(rows);
    int const lane = int(threadIdx.x) % 32;
    int64_t const* list = w.list;
    for (int left = w.n; left > 0; left -= 32, list += 32) {
        if (!__any_sync(ALL_LANES, going())) return;
        int const n = left < 32 ? left : 32;
        stage_rows<32>(all, lane < n ? int(list[lane]) : 0, n, batch.rows);
        int k = 0;
        for (; k + AHEAD <= n; k += AHEAD) {
            Met met[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) met[a] = meet(batch.rows[k + a], ray);
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) function(batch.rows[k + a], met[a]);
        }
        for (; k < n; ++k) function(batch.rows[k], meet(batch.rows[k], ray));
        __syncwarp();
    }
}

struct State {
    float start = 1, q = 1;  // T is start times q: so two parts meet at the same T, to the last bit
    float distance = 0, median = 0;
    float features[MAX_FEATURES] = {};
};

template <int C, bool MOVING, class Targets>
__device__ inline void blend_one(PartRow<MOVING, C> const& g, Met const& at, Targets const& targets, State& s,
                                 bool& open) {
    bool const seen = open & reaches(at.alpha, at.t);
    float const before = s.start * s.q, q = s.q * (1 - at.alpha), after = s.start * q;
    bool const kept = seen & (after >= T_MIN);
    open = open & (kept | !seen);
    float const weight = kept ? at.alpha * before : 0.f;
    s.q = kept ? q : s.q;
#pragma unroll
    for (int c = 0; c < C; ++c) s.features[c] += weight * g.features[c];
    s.distance += weight * targets.missed(at.t);
    s.median = kept & (before > 0.5f) & (after <= 0.5f) ? at.t : s.median;
}

template <int C>
__device__ void store_ray(RenderOutputs const& out, int64_t i, State const& s) {
    if (i < 0) return;
#pragma unroll
    for (int c = 0; c < C; ++c) out.features[C * i + c] = s.features[c];
    out.distance[i] = s.distance, out.transmittance[i] = s.q, out.median[i] = s.median;
}

}  // namespace nurec::cuda
