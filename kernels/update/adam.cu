// SPDX-License-Identifier: Apache-2.0
// One kernel over all values of all tensors, four a thread, and one over those with moments in bfloat16, if there are
// any; a small one before them counts the steps, so that no block has to wait until all others have read them, and so
// that powers are taken once a tensor, in double precision.
#include "../common/launch.cuh"
#include "adam_step.cuh"

namespace nurec::cuda {
namespace {

constexpr int64_t BLOCK_VALUES = THREADS * VALUES_PER_THREAD;

struct Places {
    unsigned begin[MAX_TENSORS];  // first block of a tensor, in ascending order
    unsigned vectors;             // bits of the tensors with vectors of four values
};

__global__ void count_steps_kernel(AdamParams p, AdamFactors<float>* factors) {
    int const k = threadIdx.x;
    if (k >= p.count || has_failed(p)) return;
    float const step = *p.tensors[k].step + 1;
    *p.tensors[k].step = step;
    factors[k] = adam_factors<float>(*p.tensors[k].rate, step, p.first, p.second);
}

template <class M>
__global__ void __launch_bounds__(THREADS)
    update_adam_kernel(AdamParams p, Places places, AdamFactors<float> const* factors) {
    int k = 0;
    unsigned begin = 0;
#pragma unroll
    for (int i = 1; i < MAX_TENSORS; ++i)
        if (blockIdx.x >= places.begin[i]) k = i, begin = places.begin[i];
    AdamTensor const& t = p.tensors[k];
    int64_t const i = (blockIdx.x - begin) * BLOCK_VALUES + threadIdx.x * VALUES_PER_THREAD,
                  end = min(i + VALUES_PER_THREAD, t.n);
    // both are looked up at once: most threads of a long drive wait for nothing else. A block of Gaussians begins at a
    // multiple of VALUES_PER_THREAD
    bool const failed = has_failed(p), read = i < t.n && reads(t, p.blocks, i);
    if (failed || !read) return;
    AdamFactors<float> const by = factors[k];
    uint32_t const draws = draws_of<M>(t, k);
    if (places.vectors >> k & 1 && i + VALUES_PER_THREAD <= t.n)
        return step_four<M>(t, i, load_four(t.gradient, i), p.betas, by, draws);
    for (int64_t j = i; j < end; ++j) step_one<M>(t, j, t.gradient[j], p.betas, by, draws);
}

// Blocks for a tensor: none for moments of the other type and for harmonics without a gradient, which another kernel
// takes.
template <class M>
int64_t blocks_of(AdamTensor const& t) {
    return t.gradient && t.narrow == NARROW<M> ? (t.n + BLOCK_VALUES - 1) / BLOCK_VALUES : 0;
}

unsigned read_in_vectors(AdamParams const& p) {
    unsigned bits = 0;
    for (int k = 0; k < p.count; ++k)
        if (in_vectors(p.tensors[k])) bits |= 1u << k;
    return bits;
}

template <class M>
void launch(AdamParams const& p, unsigned vectors, AdamFactors<float> const* factors, Queue const& queue) {
    Places places = {{}, vectors};
    int64_t blocks = 0;
    for (int k = 0; k < MAX_TENSORS; ++k) {
        places.begin[k] = k < p.count ? unsigned(blocks) : ~0u;
        if (k < p.count) blocks += blocks_of<M>(p.tensors[k]);
    }
    if (blocks) update_adam_kernel<M><<<unsigned(blocks), THREADS, 0, queue.stream>>>(p, places, factors);
}

}  // namespace

void adam(AdamParams const& p, Queue const& queue) {
    if (!p.count) return;
    auto* const factors = queue.memory.array<AdamFactors<float>>(p.count);
    unsigned const vectors = read_in_vectors(p);
    count_steps_kernel<<<1, 32, 0, queue.stream>>>(p, factors);
    launch<float>(p, vectors, factors, queue);
    launch<BFloat>(p, vectors, factors, queue);
    adam_harmonics(p, vectors, factors, queue);
}

}  // namespace nurec::cuda
