// SPDX-License-Identifier: Apache-2.0
// One kernel over all values of all tensors, four a thread; a small one before it counts the steps, so that no block
// has to wait until all others have read them, and so that powers are taken once a tensor, in double precision.
#include "../common/launch.cuh"
#include "params.h"

namespace nurec::cuda {
namespace {

constexpr int EACH = 4;  // values a thread
constexpr int64_t BLOCK = THREADS * EACH;

struct Places {
    unsigned begin[MOST_TENSORS];  // first block of a tensor, in ascending order
    unsigned vectors;              // bits of the tensors of which four values can be read at once
};

__device__ bool has_failed(AdamParams const& p) {
    return p.failed && *p.failed != 0;
}

__global__ void count_steps_kernel(AdamParams p, AdamFactors<float>* factors) {
    int const k = threadIdx.x;
    if (k >= p.count || has_failed(p)) return;
    float const step = *p.tensors[k].step + 1;
    *p.tensors[k].step = step;
    factors[k] = adam_factors<float>(p.rates[k], step, p.first, p.second);
}

__device__ float4 load4(float const* a, int64_t i) {
    return *reinterpret_cast<float4 const*>(a + i);
}

__device__ void store4(float* a, int64_t i, float4 v) {
    *reinterpret_cast<float4*>(a + i) = v;
}

__device__ void step_one(float& value, float& first, float& second, float gradient, AdamTensor const& t,
                         AdamBetas<float> const& betas, AdamFactors<float> const& by) {
    if (t.touched_only && gradient == 0) return;
    AdamValue<float> const now = adam_step({value, first, second}, gradient, betas, by);
    value = now.value, first = now.first, second = now.second;
}

__device__ void step_four(AdamTensor const& t, int64_t i, AdamBetas<float> const& betas, AdamFactors<float> const& by) {
    float4 const g = load4(t.gradient, i);
    if (t.touched_only && g.x == 0 && g.y == 0 && g.z == 0 && g.w == 0) return;  // nothing else is read
    float4 value = load4(t.value, i), first = load4(t.first, i), second = load4(t.second, i);
    step_one(value.x, first.x, second.x, g.x, t, betas, by);
    step_one(value.y, first.y, second.y, g.y, t, betas, by);
    step_one(value.z, first.z, second.z, g.z, t, betas, by);
    step_one(value.w, first.w, second.w, g.w, t, betas, by);
    store4(t.value, i, value), store4(t.first, i, first), store4(t.second, i, second);
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
    if (places.vectors >> k & 1 && i + EACH <= t.n) return step_four(t, i, p.betas, by);
    for (int64_t j = i; j < end; ++j) step_one(t.value[j], t.first[j], t.second[j], t.gradient[j], t, p.betas, by);
}

bool starts_a_vector(void const* at) {
    return reinterpret_cast<uintptr_t>(at) % sizeof(float4) == 0;
}

bool in_vectors(AdamTensor const& t) {
    return starts_a_vector(t.gradient) && starts_a_vector(t.value) && starts_a_vector(t.first) &&
           starts_a_vector(t.second);
}

}  // namespace

void adam(AdamParams const& p, Queue const& queue) {
    Places places = {};
    int64_t blocks = 0;
    for (int k = 0; k < MOST_TENSORS; ++k) {
        places.begin[k] = k < p.count ? unsigned(blocks) : ~0u;
        if (k < p.count) blocks += (p.tensors[k].n + BLOCK - 1) / BLOCK;
        if (k < p.count && in_vectors(p.tensors[k])) places.vectors |= 1u << k;
    }
    if (!p.count) return;
    auto* const factors = queue.memory.array<AdamFactors<float>>(p.count);
    count_steps_kernel<<<1, 32, 0, queue.stream>>>(p, factors);
    if (blocks) adam_kernel<<<unsigned(blocks), THREADS, 0, queue.stream>>>(p, places, factors);
}

}  // namespace nurec::cuda
