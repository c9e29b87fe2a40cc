// SPDX-License-Identifier: Apache-2.0
// Gradients, front to back: the sum behind a Gaussian is the output of the forward pass minus the Gaussians already
// passed. Every thread adds up gradients in a table of its own and takes the same tiles each time, so results are
// bitwise repeatable.
#include <cstddef>
#include <cstring>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "lanes_cpu.h"

namespace nurec::cpu {
namespace {

template <int C>
struct Grads {  // of sixteen rays
    float features[C][LANES], distance[LANES];
    float behind[LANES], T[LANES];
    float d[3][LANES], r[3][LANES];
};

template <int C>
void load_grads(RenderOutputs const& out, RenderGrads const& d, Rays const& rays, Grads<C>& s) {
    s = {};
    for (int l = 0; l < LANES; ++l) {
        int64_t const i = rays.index[l];
        s.T[l] = 1;
        if (i < 0) continue;
        s.distance[l] = d.d_distance[i];
        s.behind[l] = out.transmittance[i] * d.d_transmittance[i] + out.distance[i] * d.d_distance[i];
        for (int c = 0; c < C; ++c) {
            s.features[c][l] = d.d_features[C * i + c];
            s.behind[l] += out.features[C * i + c] * d.d_features[C * i + c];
        }
    }
}

// Weight of a Gaussian in each ray, and dL/d(alpha); whether any ray is open after it.
struct Weights {
    float w[LANES], d_alpha[LANES];
    int open, used;
};

template <int C>
NUREC_FN void weigh(Row<C> const& g, Responses const& at, Rays& rays, Grads<C>& s, Weights& out) {
    int any = 0, used = 0;
#pragma omp simd reduction(| : any, used)
    for (int l = 0; l < LANES; ++l) {
        bool open = rays.open[l];
        float const before = s.T[l];
        float T = before;
        float const w = blend_weight(at.alpha[l], at.t[l], T, open);
        float slope = range_residual(at.t[l], rays.target[l]) * s.distance[l];
        for (int c = 0; c < C; ++c) slope += g.features[c] * s.features[c][l];
        float const d_alpha = blend_backward(at.alpha[l], w, before, slope, s.behind[l]);
        out.w[l] = w;
        out.d_alpha[l] = w > 0 ? d_alpha : 0.f;
        s.T[l] = T;
        rays.open[l] = open;
        any |= open;
        used |= w > 0;
    }
    out.open = any, out.used = used;
}

template <int C, bool MOVING, bool RAYS>
NUREC_FN void add_gaussian(Row<C> const& g, Responses const& at, Rays const& rays, Weights const& ws, Grads<C>& s,
                           Row<C>& sum) {
    float m00 = 0, m01 = 0, m02 = 0, m10 = 0, m11 = 0, m12 = 0, m20 = 0, m21 = 0, m22 = 0;
    float gx = 0, gy = 0, gz = 0, vx = 0, vy = 0, vz = 0, o = 0, f0 = 0, f1 = 0, f2 = 0;
#pragma omp simd reduction(+ : m00, m01, m02, m10, m11, m12, m20, m21, m22, gx, gy, gz, vx, vy, vz, o, f0, f1, f2)
    for (int l = 0; l < LANES; ++l) {
        float const w = ws.w[l];
        float const d_t = range_residual_backward(at.t[l], rays.target[l], w * s.distance[l]);
        ResponseGrad<float> const d = respond_backward(g.frame, g.opacity, at.at(l), ws.d_alpha[l], d_t);
        Ray<float> const ray = rays.at(l);
        m00 += d.e.x * ray.d.x, m01 += d.e.x * ray.d.y, m02 += d.e.x * ray.d.z;
        m10 += d.e.y * ray.d.x, m11 += d.e.y * ray.d.y, m12 += d.e.y * ray.d.z;
        m20 += d.e.z * ray.d.x, m21 += d.e.z * ray.d.y, m22 += d.e.z * ray.d.z;
        gx += d.g.x, gy += d.g.y, gz += d.g.z;
        if constexpr (MOVING) {
            m00 += d.g.x * ray.r.x, m01 += d.g.x * ray.r.y, m02 += d.g.x * ray.r.z;
            m10 += d.g.y * ray.r.x, m11 += d.g.y * ray.r.y, m12 += d.g.y * ray.r.z;
            m20 += d.g.z * ray.r.x, m21 += d.g.z * ray.r.y, m22 += d.g.z * ray.r.z;
            vx += ray.dt * d.g.x, vy += ray.dt * d.g.y, vz += ray.dt * d.g.z;
        }
        o += d.opacity;
        f0 += w * s.features[0][l], f1 += w * s.features[1][l];
        if constexpr (C > 2) f2 += w * s.features[C - 1][l];
        if constexpr (RAYS) {
            Vec3<float> const dd = transposed_times(g.frame.M, d.e), dr = transposed_times(g.frame.M, d.g);
            s.d[0][l] += dd.x, s.d[1][l] += dd.y, s.d[2][l] += dd.z;
            s.r[0][l] += dr.x, s.r[1][l] += dr.y, s.r[2][l] += dr.z;
        }
    }
    Frame<float>& a = sum.frame;
    a.M.r0 = a.M.r0 + Vec3<float>{m00, m01, m02};
    a.M.r1 = a.M.r1 + Vec3<float>{m10, m11, m12};
    a.M.r2 = a.M.r2 + Vec3<float>{m20, m21, m22};
    a.g = a.g + Vec3<float>{gx, gy, gz};
    if constexpr (MOVING) a.drift = a.drift + Vec3<float>{vx, vy, vz};
    sum.opacity += o;
    sum.features[0] += f0, sum.features[1] += f1;
    if constexpr (C > 2) sum.features[C - 1] += f2;
}

template <int C>
void store_rays(RenderGrads const& d, Rays const& rays, Grads<C> const& s) {
    for (int l = 0; l < LANES; ++l) {
        for (int k = 0; k < 3 && rays.index[l] >= 0; ++k) {
            d.directions[3 * rays.index[l] + k] += s.d[k][l];
            d.origins[3 * rays.index[l] + k] += s.r[k][l];
        }
    }
}

// The gradients of all threads together, turned into those of the Gaussian's parameters. STILL is known when this is
// compiled: a test within would change how the compiler adds up, and gradients with it by rounding.
template <int C, bool STILL>
void finish(RenderParams const& in, int64_t i, Row<C> const& row, Row<C> const& sum, RenderGrads const& d) {
    constexpr float NONE[3] = {0, 0, 0};
    Gaussians const& g = in.g;
    int64_t const a = STILL ? i : i - g.n_still;
    Vec3<float> const m = load3(STILL ? g.still_means : g.means, a) - *g.centre;
    float const* q = (STILL ? g.still_quats : g.quats) + 4 * a;
    float const *s = g.scales + 3 * i, *v = STILL ? NONE : g.velocities + 3 * a;
    GaussianGrad<float> const own = make_frame_backward<float>(m, {q[0], q[1], q[2], q[3]}, {s[0], s[1], s[2]},
                                                               {v[0], v[1], v[2]}, row.frame, sum.frame);
    store3(STILL ? d.g.still_means : d.g.means, a, own.mean);
    store_quat(STILL ? d.g.still_quats : d.g.quats, a, own.q);
    store3(d.g.scales, i, own.s);
    if (!STILL) store3(d.g.velocities, a, own.v);
    d.g.opacities[i] = sum.opacity;
    for (int c = 0; c < C; ++c) d.features[C * i + c] = sum.features[c];
}

template <int C>
void add(Row<C>& a, Row<C> const& b) {
    static_assert(sizeof(Row<C>) % sizeof(float) == 0);
    float x[sizeof(Row<C>) / sizeof(float)], y[sizeof(Row<C>) / sizeof(float)];
    std::memcpy(x, &a, sizeof(a)), std::memcpy(y, &b, sizeof(b));
    for (std::size_t k = 0; k < sizeof(Row<C>) / sizeof(float); ++k) x[k] += y[k];
    std::memcpy(&a, x, sizeof(a));
}

template <int C, bool MOVING, bool RAYS>
void backward(RenderParams const& in, RenderOutputs const& out, RenderGrads const& d) {
    std::vector<Row<C>> table(in.g.n);
    std::vector<std::vector<Row<C>>> sums;
#pragma omp parallel
    {
        int me = 0, threads = 1;
#ifdef _OPENMP
        me = omp_get_thread_num(), threads = omp_get_num_threads();
#endif
#pragma omp single
        sums.resize(threads);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < in.g.n; ++i) table[i] = make_row<C>(in, i);
        sums[me].assign(in.g.n, Row<C>{});
        std::vector<Row<C>>& mine = sums[me];
#pragma omp for schedule(static, 4)
        for (int64_t tile = 0; tile < in.n_tiles; ++tile) {
            for (int64_t first = 0; first < in.rays_per_tile; first += LANES) {
                Rays rays;
                load_rays(in, tile, first, rays);
                Grads<C> s;
                load_grads(out, d, rays, s);
                Responses at;
                Weights ws;
                for (int64_t j = in.offsets[tile]; j < in.offsets[tile + 1]; ++j) {
                    int64_t const i = in.gaussians[j];
                    if (!respond_all<MOVING>(table[i], rays, at)) continue;
                    weigh(table[i], at, rays, s, ws);
                    if (ws.used) add_gaussian<C, MOVING, RAYS>(table[i], at, rays, ws, s, mine[i]);
                    if (!ws.open) break;
                }
                if constexpr (RAYS) store_rays(d, rays, s);
            }
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < in.g.n; ++i) {
            Row<C> total = sums[0][i];
            for (int k = 1; k < threads; ++k) add(total, sums[k][i]);
            if (i < in.g.n_still)
                finish<C, true>(in, i, table[i], total, d);
            else
                finish<C, false>(in, i, table[i], total, d);
        }
    }
}

template <int C, bool MOVING>
void backward(RenderParams const& in, RenderOutputs const& out, RenderGrads const& d) {
    if (d.origins) return backward<C, MOVING, true>(in, out, d);
    return backward<C, MOVING, false>(in, out, d);
}

}  // namespace

void render_backward(RenderParams const& in, RenderOutputs const& out, RenderGrads const& d) {
    if (in.n_features == 3) return in.moving ? backward<3, true>(in, out, d) : backward<3, false>(in, out, d);
    return in.moving ? backward<2, true>(in, out, d) : backward<2, false>(in, out, d);
}

}  // namespace nurec::cpu
