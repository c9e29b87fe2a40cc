// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "../common/gaussians_cpu.h"
#include "../math/blend.cuh"
#include "count_pairs.h"

namespace nurec::cpu {
namespace {

struct Lane {
    Ray<float> ray;
    float T = 1;
    bool open;
};

Lane load_lane(RenderParams const& in, int64_t tile, int64_t place) {
    int64_t const i = place < in.rays_per_tile ? in.rays[tile * in.rays_per_tile + place] : -1;
    if (i < 0) return {{{0, 0, 1}, {0, 0, 0}, 0}, 1, false};
    return {{load3(in.directions, i), load3(in.origins, i), in.delays[i]}, 1, true};
}

template <bool MOVING>
PairCounts count_warp(RenderParams const& in, std::vector<Frame<float>> const& frames, int64_t tile, int64_t warp) {
    Lane lanes[WARP];
    for (int l = 0; l < WARP; ++l) lanes[l] = load_lane(in, tile, warp * WARP + l);
    PairCounts n = {};
    for (int64_t j = in.offsets[tile]; j < in.offsets[tile + 1]; ++j) {
        auto const open = std::count_if(lanes, lanes + WARP, [](Lane const& lane) { return lane.open; });
        if (open == 0) break;
        int64_t const i = in.gaussians[j];
        auto const used = std::count_if(lanes, lanes + WARP, [&](Lane& lane) {
            Response<float> const at = respond<MOVING>(frames[i], in.g.opacities[i], lane.ray);
            return blend_weight(at.alpha, at.t, lane.T, lane.open) > 0;
        });
        n.gaussians += 1, n.open += open, n.contributing += used, n.useful += used > 0;
    }
    return n;
}

template <bool MOVING>
void count(RenderParams const& in, PairCounts* out) {
    std::vector<Frame<float>> frames(in.g.n);
    int64_t const warps = (in.rays_per_tile + WARP - 1) / WARP;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < in.g.n; ++i) {
            auto const [m, q, v] = placed(in.g, i);
            frames[i] = make_frame(m, load_quat(q, 0), load3(in.g.scales, i), load3(v, 0));
        }
#pragma omp for schedule(dynamic, 8)
        for (int64_t k = 0; k < in.n_tiles * warps; ++k) out[k] = count_warp<MOVING>(in, frames, k / warps, k % warps);
    }
}

}  // namespace

void count_pairs(RenderParams const& in, PairCounts* out) {
    return in.moving ? count<true>(in, out) : count<false>(in, out);
}

}  // namespace nurec::cpu
