// SPDX-License-Identifier: Apache-2.0
#include "../common/triples_cpu.h"
#include "../math/sh.cuh"
#include "params.h"

namespace nurec::cpu {
namespace {

constexpr int64_t PARALLEL = 1 << 15;  // values; below, waking other threads costs more than the pass

using Betas = AdamBetas<float>;
using Factors = AdamFactors<float>;

template <bool TOUCHED_ONLY>
NUREC_FN void step_one(float& value, float& first, float& second, float gradient, Betas const& betas,
                       Factors const& by) {
    AdamValue<float> const was = {value, first, second}, now = adam_step(was, gradient, betas, by);
    bool const stays = TOUCHED_ONLY && gradient == 0;
    value = stays ? was.value : now.value;
    first = stays ? was.first : now.first;
    second = stays ? was.second : now.second;
}

template <bool TOUCHED_ONLY>
void update(AdamTensor const& t, Betas const betas, Factors const by) {
    float const* const gradient = t.gradient;
    float *const value = t.value, *const first = t.first, *const second = t.second;
#pragma omp parallel for simd schedule(static) if (parallel : t.n > PARALLEL)
    for (int64_t i = 0; i < t.n; ++i) step_one<TOUCHED_ONLY>(value[i], first[i], second[i], gradient[i], betas, by);
}

// N values from `begin` on.
template <bool TOUCHED_ONLY, int N>
void update_row(AdamTensor const& t, int64_t begin, float const* gradient, Betas const betas, Factors const by) {
    float *const value = t.value + begin, *const first = t.first + begin, *const second = t.second + begin;
#pragma omp simd
    for (int c = 0; c < N; ++c) step_one<TOUCHED_ONLY>(value[c], first[c], second[c], gradient[c], betas, by);
}

template <int N>
void update_row(AdamTensor const& t, int64_t begin, float const* gradient, Betas const& betas, Factors const& by) {
    t.touched_only ? update_row<true, N>(t, begin, gradient, betas, by)
                   : update_row<false, N>(t, begin, gradient, betas, by);
}

template <int S>
void update_harmonics(AdamParams const& p, Factors const* by) {
    AdamHarmonics const& h = p.harmonics;
#pragma omp parallel for schedule(static) if (parallel : 3 * S * h.n > PARALLEL)
    for (int64_t i = 0; i < h.n; ++i) {
        float basis[S], gradient[3 * S];
        sh_basis(load(h.directions, i), basis);
        for (int c = 0; c < 3 * S; ++c) gradient[c] = basis[c / 3] * h.colours[3 * i + c % 3];
        update_row<3>(p.tensors[h.sh], 3 * i, gradient, p.betas, by[h.sh]);
        update_row<3 * S - 3>(p.tensors[h.rest], (3 * S - 3) * i, gradient + 3, p.betas, by[h.rest]);
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
    Factors by[MOST_TENSORS];
    for (int k = 0; k < p.count; ++k) {
        AdamTensor const& t = p.tensors[k];
        *t.step += 1;
        by[k] = adam_factors<float>(p.rates[k], *t.step, p.first, p.second);
        if (!t.gradient) continue;
        t.touched_only ? update<true>(t, p.betas, by[k]) : update<false>(t, p.betas, by[k]);
    }
    update_harmonics(p, by);
}

}  // namespace nurec::cpu
