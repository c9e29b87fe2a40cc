// SPDX-License-Identifier: Apache-2.0
// What the kernels of Adam share: one value's step, and that of four which are read at once.
#pragma once

#include <cuda_runtime.h>

#include "params.h"

namespace nurec::cuda {

constexpr int EACH = 4;  // values a thread takes at once

__device__ inline bool has_failed(AdamParams const& p) {
    return p.failed && *p.failed != 0;
}

__device__ inline float4 load_four(float const* a, int64_t i) {
    return *reinterpret_cast<float4 const*>(a + i);
}

__device__ inline void store_four(float* a, int64_t i, float4 v) {
    *reinterpret_cast<float4*>(a + i) = v;
}

__device__ inline void step_one(float& value, float& first, float& second, float gradient, AdamTensor const& t,
                                AdamBetas<float> const& betas, AdamFactors<float> const& by) {
    if (t.touched_only && gradient == 0) return;
    AdamValue<float> const now = adam_step({value, first, second}, gradient, betas, by);
    value = now.value, first = now.first, second = now.second;
}

__device__ inline void step_one(AdamTensor const& t, int64_t i, float gradient, AdamBetas<float> const& betas,
                                AdamFactors<float> const& by) {
    step_one(t.value[i], t.first[i], t.second[i], gradient, t, betas, by);
}

__device__ inline void step_four(AdamTensor const& t, int64_t i, float4 g, AdamBetas<float> const& betas,
                                 AdamFactors<float> const& by) {
    if (t.touched_only && g.x == 0 && g.y == 0 && g.z == 0 && g.w == 0) return;  // nothing else is read
    float4 value = load_four(t.value, i), first = load_four(t.first, i), second = load_four(t.second, i);
    step_one(value.x, first.x, second.x, g.x, t, betas, by);
    step_one(value.y, first.y, second.y, g.y, t, betas, by);
    step_one(value.z, first.z, second.z, g.z, t, betas, by);
    step_one(value.w, first.w, second.w, g.w, t, betas, by);
    store_four(t.value, i, value), store_four(t.first, i, first), store_four(t.second, i, second);
}

inline bool starts_a_vector(void const* at) {
    return reinterpret_cast<uintptr_t>(at) % sizeof(float4) == 0;
}

inline bool in_vectors(AdamTensor const& t) {
    return starts_a_vector(t.gradient) && starts_a_vector(t.value) && starts_a_vector(t.first) &&
           starts_a_vector(t.second);
}

// Of the tensors without a gradient; `vectors` has bits of those of which four values can be read at once, `factors`
// are those of all tensors.
void adam_harmonics(AdamParams const& p, unsigned vectors, AdamFactors<float> const* factors, Queue const& queue);

}  // namespace nurec::cuda
