// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <vector>

#include "lanes_cpu.h"

namespace nurec::cpu {
namespace {

template <int C>
struct State {
    float T[LANES], features[C][LANES], distance[LANES], median[LANES];
};

template <int C>
NUREC_FN int blend_all(Row<C> const& g, Responses const& at, Rays& rays, State<C>& s) {
    int any = 0;
#pragma omp simd reduction(| : any)
    for (int l = 0; l < LANES; ++l) {
        bool open = rays.open[l];
        float const before = s.T[l];
        float T = before;
        float const w = blend_weight(at.alpha[l], at.t[l], T, open);
        for (int c = 0; c < C; ++c) s.features[c][l] += w * g.features[c];
        s.distance[l] += w * range_residual(at.t[l], rays.target[l]);
        s.median[l] = (before > 0.5f) & (T <= 0.5f) ? at.t[l] : s.median[l];
        s.T[l] = T;
        rays.open[l] = open;
        any |= open;
    }
    return any;
}

template <int C>
void store(RenderOutputs const& out, Rays const& rays, State<C> const& s) {
    for (int l = 0; l < LANES; ++l) {
        int64_t const i = rays.index[l];
        if (i < 0) continue;
        for (int c = 0; c < C; ++c) out.features[C * i + c] = s.features[c][l];
        out.distance[i] = s.distance[l], out.transmittance[i] = s.T[l], out.median[i] = s.median[l];
    }
}

template <int C, bool MOVING>
void forward(RenderParams const& in, RenderOutputs const& out) {
    std::vector<Row<C>> table(in.g.n);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < in.g.n; ++i) table[i] = make_row<C>(in, i);
#pragma omp for schedule(dynamic, 8)
        for (int64_t tile = 0; tile < in.n_tiles; ++tile) {
            for (int64_t first = 0; first < in.rays_per_tile; first += LANES) {
                Rays rays;
                load_rays(in, tile, first, rays);
                State<C> s{};
                for (float& T : s.T) T = 1;
                Responses at;
                for (int64_t j = in.offsets[tile]; j < in.offsets[tile + 1]; ++j) {
                    Row<C> const& g = table[in.gaussians[j]];
                    if (respond_all<MOVING>(g, rays, at) && !blend_all(g, at, rays, s)) break;
                }
                store(out, rays, s);
            }
        }
    }
}

}  // namespace

void render_forward(RenderParams const& in, RenderOutputs const& out) {
    if (in.n_features == 3) return in.moving ? forward<3, true>(in, out) : forward<3, false>(in, out);
    return in.moving ? forward<2, true>(in, out) : forward<2, false>(in, out);
}

}  // namespace nurec::cpu
