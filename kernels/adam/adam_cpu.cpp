// SPDX-License-Identifier: Apache-2.0
#include "../common/triples_cpu.h"
#include "../math/sh.cuh"
#include "params.h"

namespace nurec::cpu {
namespace {

constexpr int64_t PARALLEL = 1 << 15;  // values; below, waking other threads costs more than the pass
constexpr int64_t SLICE = 64;          // Gaussians whose gradients stay in the cache

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

// The values `begin` to `end` of t, by a thread.
template <bool TOUCHED_ONLY>
void update_slice(AdamTensor const& t, int64_t begin, int64_t end, float const* gradient, Betas const betas,
                  Factors const by) {
    float *const value = t.value + begin, *const first = t.first + begin, *const second = t.second + begin;
#pragma omp simd
    for (int64_t i = 0; i < end - begin; ++i)
        step_one<TOUCHED_ONLY>(value[i], first[i], second[i], gradient[i], betas, by);
}

void update_slice(AdamTensor const& t, int64_t begin, int64_t end, float const* gradient, Betas const& betas,
                  Factors const& by) {
    t.touched_only ? update_slice<true>(t, begin, end, gradient, betas, by)
                   : update_slice<false>(t, begin, end, gradient, betas, by);
}

// Gradients of the Gaussians `begin` to `end`, as their tensors lie in memory.
template <int S>
void multiply(AdamHarmonics const& h, int64_t begin, int64_t end, float* sh, float* rest) {
    for (int64_t i = begin; i < end; ++i) {
        float basis[S];
        sh_basis(load(h.directions, i), basis);
        Vec3<float> const colour = load(h.colours, i);
        store(sh, i - begin, basis[0] * colour);
        for (int k = 1; k < S; ++k) store(rest, (S - 1) * (i - begin) + k - 1, basis[k] * colour);
    }
}

template <int S>
void update_harmonics(AdamParams const& p, Factors const* by) {
    constexpr int64_t REST = 3 * S - 3;
    AdamHarmonics const& h = p.harmonics;
#pragma omp parallel for schedule(static) if (parallel : 3 * S * h.n > PARALLEL)
    for (int64_t begin = 0; begin < h.n; begin += SLICE) {
        int64_t const end = smaller(begin + SLICE, h.n);
        float sh[3 * SLICE], rest[(REST + 1) * SLICE];  // one more: no array is empty
        multiply<S>(h, begin, end, sh, rest);
        update_slice(p.tensors[h.sh], 3 * begin, 3 * end, sh, p.betas, by[h.sh]);
        update_slice(p.tensors[h.rest], REST * begin, REST * end, rest, p.betas, by[h.rest]);
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
