// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "../common/triples_cpu.h"
#include "../math/sh.cuh"
#include "adam.h"

namespace nurec::cpu {
namespace {

constexpr int64_t PARALLEL = 1 << 15;                // values; below, waking other threads costs more than the pass
constexpr int64_t SLICE = 64;                        // Gaussians: their gradients stay in the cache
constexpr int64_t SLICES = BLOCK_GAUSSIANS / SLICE;  // of a block

using Factors = AdamFactors<float>;

// Inputs of a pass over the values of tensor k, with moments M.
template <class M>
struct Pass {
    float* value;
    M *first, *second;
    AdamBetas<float> betas;
    Factors by;
    uint32_t draws;

    Pass(AdamParams const& p, int k, Factors const& by)
        : value(p.tensors[k].value),
          first(static_cast<M*>(p.tensors[k].first)),
          second(static_cast<M*>(p.tensors[k].second)),
          betas(p.betas),
          by(by),
          draws(draws_of<M>(p.tensors[k], k)) {}
};

// Value i of the tensor. A kept moment is a number that its type holds, so that rounding leaves it as it is.
template <bool TOUCHED_ONLY, class M>
NUREC_FN void step_one(Pass<M> const& to, int64_t i, float gradient) {
    AdamValue<float> const was = {to.value[i], widened(to.first[i]), widened(to.second[i])};
    AdamValue<float> const now = adam_step(was, gradient, to.betas, to.by);
    bool const stays = TOUCHED_ONLY && gradient == 0;
    uint32_t const draw = NARROW<M> ? mixed(to.draws + uint32_t(i)) : 0;
    to.value[i] = stays ? was.value : now.value;
    keep(to.first[i], stays ? was.first : now.first, draw);
    keep(to.second[i], stays ? was.second : now.second, draw >> 16);
}

// Calls f with two constants: whether values without a gradient stay, and the functor of the moments' type.
template <class F>
void with_kinds(AdamParams const& p, int k, Factors const& by, F const& f) {
    AdamTensor const& t = p.tensors[k];
    auto const chosen = [&](auto const to) { t.touched_only ? f(std::true_type(), to) : f(std::false_type(), to); };
    t.narrow ? chosen(Pass<BFloat>(p, k, by)) : chosen(Pass<float>(p, k, by));
}

void update_all(AdamParams const& p, int k, Factors const& by) {
    AdamTensor const& t = p.tensors[k];
    with_kinds(p, k, by, [n = t.n, gradient = t.gradient](auto touched_only, auto const to) {
#pragma omp parallel for simd schedule(static) if (parallel : n > PARALLEL)
        for (int64_t i = 0; i < n; ++i) step_one<touched_only>(to, i, gradient[i]);
    });
}

// The values `begin` to `end` of tensor k, by a thread; the gradient is that of these alone.
void update_slice(AdamParams const& p, int k, int64_t begin, int64_t end, float const* gradient, Factors const& by) {
    with_kinds(p, k, by, [=](auto touched_only, auto const to) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) step_one<touched_only>(to, i, gradient[i - begin]);
    });
}

void update(AdamParams const& p, int k, Factors const& by) {
    AdamTensor const& t = p.tensors[k];
    if (!t.of_block) return update_all(p, k, by);
    int64_t const count = p.blocks.count(p.n);
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < count; ++b) {
        int64_t const begin = t.of_block * p.blocks.block(b);
        update_slice(p, k, begin, smaller(begin + t.of_block, t.n), t.gradient + begin, by);
    }
}

// Gradients of the Gaussians `begin` to `end`, as their tensors lie in memory.
template <int S>
void multiply(AdamHarmonics const& h, int64_t begin, int64_t end, float* sh, float* rest) {
    for (int64_t i = begin; i < end; ++i) {
        Vec3<float> sums[S] = {};
        for (int64_t v = 0; v < h.views; ++v) {
            float basis[S];
            sh_basis(load(h.directions + v * h.stride, i), basis);
            Vec3<float> const colour = load(h.colours + v * h.stride, i);
            for (int k = 0; k < S; ++k) sums[k] = v ? sums[k] + basis[k] * colour : basis[k] * colour;
        }
        store(sh, i - begin, sums[0]);
        for (int k = 1; k < S; ++k) store(rest, (S - 1) * (i - begin) + k - 1, sums[k]);
    }
}

template <int S>
void update_harmonics(AdamParams const& p, Factors const* by) {
    constexpr int64_t REST = 3 * S - 3;
    AdamHarmonics const& h = p.harmonics;
    int64_t const slices = SLICES * h.blocks.count(h.n);
#pragma omp parallel for schedule(static) if (parallel : 3 * S * h.n > PARALLEL)
    for (int64_t k = 0; k < slices; ++k) {
        int64_t const begin = h.blocks.first(k / SLICES) + SLICE * (k % SLICES), end = smaller(begin + SLICE, h.n);
        if (begin >= end) continue;
        float sh[3 * SLICE], rest[(REST + 1) * SLICE];  // one more: no array is empty
        multiply<S>(h, begin, end, sh, rest);
        update_slice(p, h.sh, 3 * begin, 3 * end, sh, by[h.sh]);
        update_slice(p, h.rest, REST * begin, REST * end, rest, by[h.rest]);
    }
}

void update_harmonics(AdamParams const& p, Factors const* by) {
    if (!p.harmonics.n) return;
    switch (p.harmonics.s) {
        case 1:
            return update_harmonics<1>(p, by);
        case 4:
            return update_harmonics<4>(p, by);
        case 9:
            return update_harmonics<9>(p, by);
        default:
            return update_harmonics<16>(p, by);
    }
}

}  // namespace

void adam(AdamParams const& p) {
    if (p.failed && *p.failed != 0) return;
    Factors by[MAX_TENSORS];
    for (int k = 0; k < p.count; ++k) {
        AdamTensor const& t = p.tensors[k];
        *t.step += 1;
        by[k] = adam_factors<float>(*t.rate, *t.step, p.first, p.second);
        if (t.gradient) update(p, k, by[k]);
    }
    update_harmonics(p, by);
}

}  // namespace nurec::cpu
