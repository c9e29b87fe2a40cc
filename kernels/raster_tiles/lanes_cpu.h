// SPDX-License-Identifier: Apache-2.0
// Sixteen rays side by side, and one Gaussian against all of them, in loops that the compiler vectorises.
#pragma once

#include "../common/gaussians_cpu.h"
#include "../math/blend.cuh"
#include "render.h"

namespace nurec::cpu {

constexpr int LANES = 16;

template <int C>
struct Row {  // of a Gaussian
    Frame<float> frame;
    float opacity;
    float features[C];
    float most;  // D2, and a little more: beyond, alpha is below ALPHA_MIN
};

struct Rays {
    float d[3][LANES], r[3][LANES], dt[LANES];
    RangeTarget<float> target[LANES];
    int open[LANES];
    int64_t index[LANES];  // -1: no ray

    NUREC_FN Ray<float> at(int l) const { return {{d[0][l], d[1][l], d[2][l]}, {r[0][l], r[1][l], r[2][l]}, dt[l]}; }
};

inline void load_rays(RenderParams const& in, int64_t tile, int64_t first, Rays& rays) {
    constexpr float NO_RAY[3] = {0, 0, 1};  // closed, but computed with
    for (int l = 0; l < LANES; ++l) {
        int64_t const place = first + l;
        int64_t const i = place < in.rays_per_tile ? in.rays[tile * in.rays_per_tile + place] : -1;
        rays.index[l] = i;
        rays.open[l] = i >= 0;
        for (int k = 0; k < 3; ++k) {
            rays.d[k][l] = i < 0 ? NO_RAY[k] : in.directions[3 * i + k];
            rays.r[k][l] = i < 0 ? 0 : in.origins[3 * i + k];
        }
        rays.dt[l] = i < 0 ? 0 : in.delays[i];
        bool const ends = i >= 0 && in.targets;
        rays.target[l] = ends ? RangeTarget<float>{in.targets[2 * i], in.targets[2 * i + 1]} : NO_RANGE_TARGET;
    }
}

// Responses of one Gaussian; false if no open ray sees it.
struct Responses {
    float gx[LANES], gy[LANES], gz[LANES], ex[LANES], ey[LANES], ez[LANES];
    float inverse[LANES], D2[LANES], falloff[LANES], alpha[LANES], t[LANES];

    NUREC_FN Response<float> at(int l) const {
        return {{gx[l], gy[l], gz[l]}, {ex[l], ey[l], ez[l]}, inverse[l], D2[l], falloff[l], alpha[l], t[l]};
    }
};

template <bool MOVING, int C>
NUREC_FN bool respond_all(Row<C> const& row, Rays const& rays, Responses& out) {
    float nearest = row.most, top = 0;
#pragma omp simd reduction(min : nearest)
    for (int l = 0; l < LANES; ++l) {
        Response<float> const a = approach<MOVING>(row.frame, rays.at(l));
        out.gx[l] = a.g.x, out.gy[l] = a.g.y, out.gz[l] = a.g.z;
        out.ex[l] = a.e.x, out.ey[l] = a.e.y, out.ez[l] = a.e.z;
        out.inverse[l] = a.inverse, out.D2[l] = a.D2, out.t[l] = a.t;
        nearest = smaller(nearest, rays.open[l] ? a.D2 : row.most);
    }
    if (nearest >= row.most) return false;  // without an exponential
#pragma omp simd reduction(max : top)
    for (int l = 0; l < LANES; ++l) {
        out.falloff[l] = exp(-0.5f * out.D2[l]);
        out.alpha[l] = smaller(ALPHA_MAX, row.opacity * out.falloff[l]);
        top = larger(top, rays.open[l] ? out.alpha[l] : 0.f);
    }
    return top >= ALPHA_MIN;
}

template <int C>
Row<C> make_row(RenderParams const& in, int64_t i) {
    auto const [m, q, v] = placed(in.g, i);
    float const* s = in.g.scales + 3 * i;
    Row<C> row;
    row.frame = make_frame<float>(m, {q[0], q[1], q[2], q[3]}, {s[0], s[1], s[2]}, {v[0], v[1], v[2]});
    row.opacity = in.g.opacities[i];
    row.most = 2 * std::log(larger(row.opacity, 1e-30f) / ALPHA_MIN) * 1.0001f + 1e-4f;
    for (int c = 0; c < C; ++c) row.features[c] = in.features[C * i + c];
    return row;
}

}  // namespace nurec::cpu
