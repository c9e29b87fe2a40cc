// SPDX-License-Identifier: Apache-2.0
// One kernel over all values of all tensors, four a thread, and one over those with moments in bfloat16, if there are
// any; a small one before them counts the steps, so that no block has to wait until all others have read them, and so
// that powers are taken once a tensor, in double precision. Where the visible blocks of the store are known, the last
// thread blocks of the kernel go through these, tensor by tensor.
#include "../common/visible.cuh"
#include "adam_step.cuh"

namespace nurec::cuda {
namespace {

constexpr int64_t BLOCK_VALUES = THREADS * VALUES_PER_THREAD;

struct Places {
    unsigned begin[MAX_TENSORS];  // first thread block of a tensor, in ascending order, without those by blocks
    unsigned end;                 // of these thread blocks
    unsigned vectors;             // bits of the tensors with vectors of four values
    int by_blocks;                // tensors of visible blocks
    int tensor[MAX_TENSORS];      // their numbers
};

__global__ void count_steps_kernel(AdamParams p, AdamFactors<float>* factors) {
    int const k = threadIdx.x;
    if (k >= p.count || has_failed(p)) return;
    float const step = *p.tensors[k].step + 1;
    *p.tensors[k].step = step;
    factors[k] = adam_factors<float>(*p.tensors[k].rate, step, p.first, p.second);
}

// Updates this thread's values of tensor k, from value i on and before `end`.
template <class M>
__device__ void update_values(AdamParams const& p, Places const& places, AdamFactors<float> const* factors, int k,
                              int64_t i, int64_t end) {
    AdamTensor const& t = p.tensors[k];
    if (i >= end) return;
    AdamFactors<float> const by = factors[k];
    uint32_t const draws = draws_of<M>(t, k);
    if (places.vectors >> k & 1 && i + VALUES_PER_THREAD <= end)
        return step_four<M>(t, i, load_four(t.gradient, i), p.betas, by, draws);
    for (int64_t j = i; j < min(i + VALUES_PER_THREAD, end); ++j) step_one<M>(t, j, t.gradient[j], p.betas, by, draws);
}

// Goes through the visible blocks, tensor by tensor. A block's values begin at a multiple of VALUES_PER_THREAD.
template <class M>
__device__ void update_blocks(AdamParams const& p, Places const& places, AdamFactors<float> const* factors) {
    unsigned const count = unsigned(p.blocks.count(p.n));
#pragma unroll 1
    for (unsigned w = blockIdx.x - places.end; w < count * unsigned(places.by_blocks); w += gridDim.x - places.end) {
        int const k = places.tensor[w / count];
        AdamTensor const& t = p.tensors[k];
        int64_t const begin = t.of_block * p.blocks.block(w % count), end = min(begin + t.of_block, t.n);
#pragma unroll 1
        for (int64_t i = begin + threadIdx.x * VALUES_PER_THREAD; i < end; i += BLOCK_VALUES)
            update_values<M>(p, places, factors, k, i, end);
    }
}

// LISTED: some tensors have visible blocks.
template <class M, bool LISTED>
__global__ void __launch_bounds__(THREADS)
    update_adam_kernel(AdamParams p, Places places, AdamFactors<float> const* factors) {
    if (has_failed(p)) return;
    if constexpr (LISTED)
        if (blockIdx.x >= places.end) return update_blocks<M>(p, places, factors);
    int k = 0;
    unsigned begin = 0;
#pragma unroll
    for (int i = 1; i < MAX_TENSORS; ++i)
        if (blockIdx.x >= places.begin[i]) k = i, begin = places.begin[i];
    int64_t const i = (blockIdx.x - begin) * BLOCK_VALUES + threadIdx.x * VALUES_PER_THREAD;
    update_values<M>(p, places, factors, k, i, p.tensors[k].n);
}

// Whether this kernel updates a tensor: another one takes moments of the other type, and harmonics without a gradient.
template <class M>
bool takes(AdamTensor const& t) {
    return t.gradient && t.narrow == NARROW<M>;
}

unsigned read_in_vectors(AdamParams const& p) {
    unsigned bits = 0;
    for (int k = 0; k < p.count; ++k)
        if (in_vectors(p.tensors[k])) bits |= 1u << k;
    return bits;
}

template <class M>
void launch(AdamParams const& p, unsigned vectors, AdamFactors<float> const* factors, Queue const& queue) {
    Places places = {};
    places.vectors = vectors;
    int64_t blocks = 0;
    for (int k = 0; k < MAX_TENSORS; ++k) {
        places.begin[k] = k < p.count ? unsigned(blocks) : ~0u;
        if (k >= p.count || !takes<M>(p.tensors[k])) continue;
        if (p.tensors[k].of_block)
            places.tensor[places.by_blocks++] = k;
        else
            blocks += (p.tensors[k].n + BLOCK_VALUES - 1) / BLOCK_VALUES;
    }
    places.end = unsigned(blocks);
    if (places.by_blocks)
        blocks +=
            smaller<int64_t>(places.by_blocks * blocks_of_store(p.n), BLOCKS_PER_MULTIPROCESSOR * multiprocessors());
    auto* const kernel = places.by_blocks ? update_adam_kernel<M, true> : update_adam_kernel<M, false>;
    if (blocks) kernel<<<unsigned(blocks), THREADS, 0, queue.stream>>>(p, places, factors);
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
