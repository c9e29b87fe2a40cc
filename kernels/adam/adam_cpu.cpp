// SPDX-License-Identifier: Apache-2.0
#include "params.h"

namespace nurec::cpu {
namespace {

constexpr int64_t PARALLEL = 1 << 15;  // below, waking other threads costs more than the pass

template <bool TOUCHED_ONLY>
void update(AdamTensor const& t, AdamBetas<float> const betas, AdamFactors<float> const by) {
    float const* const gradient = t.gradient;
    float *const value = t.value, *const first = t.first, *const second = t.second;
#pragma omp parallel for simd schedule(static) if (parallel : t.n > PARALLEL)
    for (int64_t i = 0; i < t.n; ++i) {
        AdamValue<float> const was = {value[i], first[i], second[i]}, now = adam_step(was, gradient[i], betas, by);
        bool const stays = TOUCHED_ONLY && gradient[i] == 0;
        value[i] = stays ? was.value : now.value;
        first[i] = stays ? was.first : now.first;
        second[i] = stays ? was.second : now.second;
    }
}

}  // namespace

void adam(AdamParams const& p) {
    if (p.failed && *p.failed != 0) return;
    for (int k = 0; k < p.count; ++k) {
        AdamTensor const& t = p.tensors[k];
        *t.step += 1;
        AdamFactors<float> const by = adam_factors<float>(p.rates[k], *t.step, p.first, p.second);
        t.touched_only ? update<true>(t, p.betas, by) : update<false>(t, p.betas, by);
    }
}

}  // namespace nurec::cpu
