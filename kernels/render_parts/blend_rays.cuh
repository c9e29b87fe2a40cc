// SPDX-License-Identifier: Apache-2.0
// A group of lanes blends a list of Gaussians, or a part of one, over the rays of its bundle, one lane a ray.
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

template <bool MOVING, int C>
__device__ Sight sight_of(RenderParams const& p, Work const& w) {
    int64_t const i = ray_of<C>(p, w);
    if (i < 0) return {i, {0, 0, 1}, 0};
    return {i, load3(p.directions, i), MOVING ? p.delays[i] : 0.f};
}

struct Met {  // of a Gaussian by a ray
    float alpha, t;
};

template <bool MOVING, int C>
__device__ Met meet(PartRow<MOVING, C> const& g, Sight const& ray) {
    AlignedResponse<float> const at = evaluate(g.frame, ray.d, ray.dt);
    return {at.alpha, at.t};
}

// Of the groups of a block, in shared memory.
template <bool MOVING, int C>
struct Batches {
    static constexpr int P = LANES<C>;
    PartRow<MOVING, C> rows[WARPS * GROUPS<C>][P + (P < 32)];  // one more: else groups would read from the same banks
};

// Calls function(row, met) for the entries of a part, as long as going() holds for a lane of the warp. AHEAD responses
// are found together, which do not wait for one another; where another group's part is longer, of rows that nobody
// wrote, too.
template <int AHEAD, bool MOVING, int C, class Going, class Function>
__device__ void for_rows(Batches<MOVING, C>& batches, float const* rows, Work const& w, Sight const& ray,
                         Going const& going, Function const& function) {
    constexpr int P = LANES<C>;
    auto* const batch = batches.rows[threadIdx.x / P];
    auto const* all = reinterpret_cast<PartRow<MOVING, C> const*>(rows);
    int const lane = lane_of_group<C>();
    int const* list = w.list;
    for (int left = w.n; P < 32 || left > 0; left -= P, list += P) {
        if (!__any_sync(ALL_LANES, (P == 32 || left > 0) && going())) return;
        int const n = left < P ? left : P, most = most_of_groups<P>(n);
        stage_rows<C, P>(all, lane < n ? list[lane] : 0, n, batch);
        auto const take = [&](int k, Met const& met) {
            if (P == 32 || k < n) function(batch[k], met);
        };
        int k = 0;
        for (; k + AHEAD <= most; k += AHEAD) {
            Met met[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) met[a] = meet(batch[k + a], ray);
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) take(k + a, met[a]);
        }
        for (; k < most; ++k) take(k, meet(batch[k], ray));
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
    s.distance += weight * targets.range_residual(at.t);
    if (C == 2) s.median = kept & (before > 0.5f) & (after <= 0.5f) ? at.t : s.median;  // nobody asks an image's rays
}

template <int C>
__device__ void store_ray(RenderOutputs const& out, int64_t i, State const& s) {
    if (i < 0) return;
#pragma unroll
    for (int c = 0; c < C; ++c) out.features[C * i + c] = s.features[c];
    out.distance[i] = s.distance, out.transmittance[i] = s.q, out.median[i] = s.median;
}

}  // namespace nurec::cuda
