// SPDX-License-Identifier: Apache-2.0
// Shared code of Adam's kernels: the step of one value, and of four that are read together.
#pragma once

#include <cuda_runtime.h>

#include "adam.h"

namespace nurec::cuda {

constexpr int VALUES_PER_THREAD = 4;  // values a thread takes at once

__device__ inline bool has_failed(AdamParams const& p) {
    return p.failed && *p.failed != 0;
}

__device__ inline float4 load_four(float const* a, int64_t i) {
    return *reinterpret_cast<float4 const*>(a + i);
}

__device__ inline float4 load_four(BFloat const* a, int64_t i) {
    uint2 const two = *reinterpret_cast<uint2 const*>(a + i);
    return make_float4(__uint_as_float(two.x << 16), __uint_as_float(two.x & 0xffff0000), __uint_as_float(two.y << 16),
                       __uint_as_float(two.y & 0xffff0000));
}

__device__ inline void store_four(float* a, int64_t i, float4 v, uint4 = {}) {
    *reinterpret_cast<float4*>(a + i) = v;
}

__device__ inline void store_four(BFloat* a, int64_t i, float4 v, uint4 draws) {
    auto const two = [](float low, float high, unsigned draw, unsigned other) {
        return rounded(low, draw).bits | unsigned(rounded(high, other).bits) << 16;
    };
    *reinterpret_cast<uint2*>(a + i) = make_uint2(two(v.x, v.y, draws.x, draws.y), two(v.z, v.w, draws.z, draws.w));
}

// The second moment takes the upper half of a draw.
__device__ inline uint4 upper(uint4 draws) {
    return make_uint4(draws.x >> 16, draws.y >> 16, draws.z >> 16, draws.w >> 16);
}

template <class M>
__device__ uint4 four_draws(uint32_t start, int64_t i) {
    if constexpr (!NARROW<M>) return make_uint4(0, 0, 0, 0);
    unsigned const k = start + unsigned(i);
    return make_uint4(mixed(k), mixed(k + 1), mixed(k + 2), mixed(k + 3));
}

__device__ inline void step_one(float& value, float& first, float& second, float gradient, AdamTensor const& t,
                                AdamBetas<float> const& betas, AdamFactors<float> const& by) {
    if (t.touched_only && gradient == 0) return;
    AdamValue<float> const now = adam_step({value, first, second}, gradient, betas, by);
    value = now.value, first = now.first, second = now.second;
}

// Asked for at each use: the compiler then takes them from where a kernel's arguments lie, and keeps them in no
// register.
template <class M>
__device__ M* firsts(AdamTensor const& t) {
    return static_cast<M*>(t.first);
}

template <class M>
__device__ M* seconds(AdamTensor const& t) {
    return static_cast<M*>(t.second);
}

// Value i of t, with moments of type M; `draws` as draws_of has them.
template <class M>
__device__ void step_one(AdamTensor const& t, int64_t i, float gradient, AdamBetas<float> const& betas,
                         AdamFactors<float> const& by, uint32_t draws) {
    if (t.touched_only && gradient == 0) return;
    float first = widened(firsts<M>(t)[i]), second = widened(seconds<M>(t)[i]);
    step_one(t.value[i], first, second, gradient, t, betas, by);
    uint32_t const draw = NARROW<M> ? mixed(draws + uint32_t(i)) : 0;
    keep(firsts<M>(t)[i], first, draw), keep(seconds<M>(t)[i], second, draw >> 16);
}

// Four from value i on. A kept moment is a number that its type holds, so that rounding leaves it as it is.
template <class M>
__device__ void step_four(AdamTensor const& t, int64_t i, float4 g, AdamBetas<float> const& betas,
                          AdamFactors<float> const& by, uint32_t draws) {
    if (t.touched_only && g.x == 0 && g.y == 0 && g.z == 0 && g.w == 0) return;  // nothing else is read
    float4 value = load_four(t.value, i), first = load_four(firsts<M>(t), i), second = load_four(seconds<M>(t), i);
    step_one(value.x, first.x, second.x, g.x, t, betas, by);
    step_one(value.y, first.y, second.y, g.y, t, betas, by);
    step_one(value.z, first.z, second.z, g.z, t, betas, by);
    step_one(value.w, first.w, second.w, g.w, t, betas, by);
    store_four(t.value, i, value);
    uint4 const own = four_draws<M>(draws, i);
    store_four(firsts<M>(t), i, first, own), store_four(seconds<M>(t), i, second, upper(own));
}

inline bool starts_a_vector(void const* at, std::size_t bytes = sizeof(float4)) {
    return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

inline bool in_vectors(AdamTensor const& t) {
    std::size_t const moments = VALUES_PER_THREAD * (t.narrow ? sizeof(BFloat) : sizeof(float));
    return starts_a_vector(t.gradient) && starts_a_vector(t.value) && starts_a_vector(t.first, moments) &&
           starts_a_vector(t.second, moments);
}

// Updates the tensors without a gradient; `vectors` has bits of those with four values to read at once, `factors` are
// those of all tensors.
void adam_harmonics(AdamParams const& p, unsigned vectors, AdamFactors<float> const* factors, Queue const& queue);

}  // namespace nurec::cuda
