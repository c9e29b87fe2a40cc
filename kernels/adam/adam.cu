// SPDX-License-Identifier: Apache-2.0
// One kernel over all values of all tensors, four a thread; a small one before it counts the steps, so that no block
// has to wait until all others have read them, and so that powers are taken once a tensor, in double precision.
#include "../common/launch.cuh"
#include "step.cuh"

namespace nurec::cuda {
namespace {

constexpr int64_t BLOCK = THREADS * EACH;

struct Places {
    unsigned begin[MOST_TENSORS];  // first block of a tensor, in ascending order
    unsigned vectors;              // bits of the tensors of which four values can be read at once
};

__global__ void count_steps_kernel(AdamParams p, AdamFactors<float>* factors) {
    int const k = threadIdx.x;
    if (k >= p.count || has_failed(p)) return;
    float const step = *p.tensors[k].step + 1;
    *p.tensors[k].step = step;
    factors[k] = adam_factors<float>(p.rates[k], step, p.first, p.second);
}

__global__ void __launch_bounds__(THREADS) adam_kernel(AdamParams p, Places places, AdamFactors<float> const* factors) {
    if (has_failed(p)) return;
    int k = 0;
    unsigned begin = 0;
#pragma unroll
    for (int i = 1; i < MOST_TENSORS; ++i)
        if (blockIdx.x >= places.begin[i]) k = i, begin = places.begin[i];
    AdamTensor const& t = p.tensors[k];
    AdamFactors<float> const by = factors[k];
    int64_t const i = (blockIdx.x - begin) * BLOCK + threadIdx.x * EACH, end = min(i + EACH, t.n);
    if (places.vectors >> k & 1 && i + EACH <= t.n) return step_four(t, i, load_four(t.gradient, i), p.betas, by);
    for (int64_t j = i; j < end; ++j) step_one(t, j, t.gradient[j], p.betas, by);
}

// Of harmonics without a gradient none: another kernel takes those.
int64_t blocks_of(AdamTensor const& t) {
    return t.gradient ? (t.n + BLOCK - 1) / BLOCK : 0;
}

}  // namespace

void adam(AdamParams const& p, Queue const& queue) {
    Places places = {};
    int64_t blocks = 0;
    for (int k = 0; k < MOST_TENSORS; ++k) {
        places.begin[k] = k < p.count ? unsigned(blocks) : ~0u;
        if (k < p.count) blocks += blocks_of(p.tensors[k]);
        if (k < p.count && in_vectors(p.tensors[k])) places.vectors |= 1u << k;
    }
    if (!p.count) return;
    auto* const factors = queue.memory.array<AdamFactors<float>>(p.count);
    count_steps_kernel<<<1, 32, 0, queue.stream>>>(p, factors);
    if (blocks) adam_kernel<<<unsigned(blocks), THREADS, 0, queue.stream>>>(p, places, factors);
    adam_harmonics(p, places.vectors, factors, queue);
}

}  // namespace nurec::cuda
