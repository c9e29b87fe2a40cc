// SPDX-License-Identifier: Apache-2.0
// A group of lanes blends a list of Gaussians, or a segment of one, over the list's rays, one lane a ray.
#pragma once

#include "../../project/load_rays.cuh"
#include "segments.cuh"

namespace nurec::cuda {

// The ray of a lane.
struct LaneRay {
    int64_t i;  // -1: none
    Vec3<float> d;
    float dt;
};

template <bool MOVING, int C>
__device__ LaneRay load_lane_ray(RenderParams const& p, SegmentRange const& w) {
    int64_t const i = ray_of<C>(p, w);
    if (i < 0) return {i, {0, 0, 1}, 0};
    return {i, load3(p.directions, i), MOVING ? p.delays[i] : 0.f};
}

struct RayResponse {  // of a ray to a Gaussian
    float alpha, t;
};

template <bool MOVING, int C>
__device__ RayResponse evaluate(GaussianRow<MOVING, C> const& g, LaneRay const& ray) {
    AlignedResponse<float> const at = evaluate(g.frame, ray.d, ray.dt);
    return {at.alpha, at.t};
}

// Staged rows of a block's groups, in shared memory.
template <bool MOVING, int C>
struct RowBatches {
    static constexpr int P = LANES<C>;
    GaussianRow<MOVING, C> rows[WARPS * GROUPS<C>]
                               [P + (P < 32)];  // one more: else groups would read from the same banks
};

// Calls function(row, response) for each entry of a segment, while going() holds for a lane of the warp. It evaluates
// AHEAD responses together, because they do not depend on one another. If another group of the warp has a longer
// segment, it also evaluates unwritten rows; their responses are not used.
template <int AHEAD, bool MOVING, int C, class Going, class Function>
__device__ void for_rows(RowBatches<MOVING, C>& batches, float const* rows, SegmentRange const& w, LaneRay const& ray,
                         Going const& going, Function const& function) {
    constexpr int P = LANES<C>;
    auto* const batch = batches.rows[threadIdx.x / P];
    auto const* all = reinterpret_cast<GaussianRow<MOVING, C> const*>(rows);
    int const lane = lane_of_group<C>();
    int const* entries = w.entries;
    for (int left = w.n; P < 32 || left > 0; left -= P, entries += P) {
        if (!__any_sync(ALL_LANES, (P == 32 || left > 0) && going())) return;
        int const n = left < P ? left : P, most = max_over_groups<P>(n);
        stage_rows<C, P>(all, lane < n ? entries[lane] : 0, n, batch);
        auto const take = [&](int k, RayResponse const& met) {
            if (P == 32 || k < n) function(batch[k], met);
        };
        int k = 0;
        for (; k + AHEAD <= most; k += AHEAD) {
            RayResponse met[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) met[a] = evaluate(batch[k + a], ray);
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) take(k + a, met[a]);
        }
        for (; k < most; ++k) take(k, evaluate(batch[k], ray));
        __syncwarp();
    }
}

struct BlendState {
    float start = 1, q = 1;  // T is start times q: two segments agree on T to the last bit
    float distance = 0, median = 0;
    float features[MAX_FEATURES] = {};
};

template <int C, bool MOVING, class Targets>
__device__ inline void blend_one(GaussianRow<MOVING, C> const& g, RayResponse const& at, Targets const& targets,
                                 BlendState& s, bool& open) {
    bool const seen = open & reaches(at.alpha, at.t);
    float const before = s.start * s.q, q = s.q * (1 - at.alpha), after = s.start * q;
    bool const kept = seen & (after >= T_MIN);
    open = open & (kept | !seen);
    float const weight = kept ? at.alpha * before : 0.f;
    s.q = kept ? q : s.q;
#pragma unroll
    for (int c = 0; c < C; ++c) s.features[c] += weight * g.features[c];
    s.distance += weight * targets.range_residual(at.t);
    if (C == 2) s.median = kept & (before > 0.5f) & (after <= 0.5f) ? at.t : s.median;  // images need none
}

template <int C>
__device__ void store_ray(RenderOutputs const& out, int64_t i, BlendState const& s) {
    if (i < 0) return;
#pragma unroll
    for (int c = 0; c < C; ++c) out.features[C * i + c] = s.features[c];
    out.distance[i] = s.distance, out.transmittance[i] = s.q, out.median[i] = s.median;
}

}  // namespace nurec::cuda
