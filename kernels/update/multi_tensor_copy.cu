// SPDX-License-Identifier: Apache-2.0
// A block takes BLOCK_BYTES bytes of one copy, in the longest units that both addresses allow; the last block writes
// the numbers. So a launch has one wave of blocks for some megabytes, and one block for each of the many small arrays.
#include "../common/launch.cuh"
#include "multi_tensor_copy.h"

namespace nurec::cuda {
namespace {

constexpr int64_t BLOCK_BYTES = 8192;  // bytes: two vectors a thread

struct Places {
    unsigned begin[MAX_COPIES_PER_LAUNCH];  // first block of a copy, in ascending order; none after the last copy
                                            // comes so far
    unsigned blocks;                        // of all copies
};

// Two at a time, so that the second need not wait for the first. The rest after the last whole unit is copied as bytes.
template <class Unit>
__device__ void copy_units(char* into, char const* values, unsigned bytes) {
    Unit* const to = reinterpret_cast<Unit*>(into);
    Unit const* const from = reinterpret_cast<Unit const*>(values);
    unsigned const units = bytes / sizeof(Unit);
#pragma unroll 1
    for (unsigned k = threadIdx.x; k < units; k += 2 * THREADS) {
        bool const two = k + THREADS < units;
        Unit const one = from[k], other = two ? from[k + THREADS] : Unit{};
        to[k] = one;
        if (two) to[k + THREADS] = other;
    }
    unsigned const at = units * sizeof(Unit) + threadIdx.x;
    if (at < bytes) into[at] = values[at];
}

__device__ bool both_begin(char const* a, char const* b, unsigned unit) {
    return ((reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) & (unit - 1)) == 0;
}

__device__ void copy_block(Copy const& c, unsigned block) {
    int64_t const begin = block * BLOCK_BYTES;
    char* const into = static_cast<char*>(c.into) + begin;
    char const* const values = static_cast<char const*>(c.values) + begin;
    unsigned const bytes = unsigned(min(BLOCK_BYTES, c.bytes - begin));
    if (both_begin(into, values, sizeof(uint4))) return copy_units<uint4>(into, values, bytes);
    if (both_begin(into, values, sizeof(unsigned))) return copy_units<unsigned>(into, values, bytes);
    copy_units<unsigned char>(into, values, bytes);
}

__global__ void __launch_bounds__(THREADS) copy_tensors_kernel(CopyParams p, Places places) {
    if (blockIdx.x == places.blocks) {
        int const k = int(threadIdx.x);
        if (k < p.numbers) p.numbers_at[k] = p.values[k];
        return;
    }
    int k = 0;
#pragma unroll
    for (int step = MAX_COPIES_PER_LAUNCH / 2; step; step /= 2)
        if (blockIdx.x >= places.begin[k + step]) k += step;
    copy_block(p.copies[k], blockIdx.x - places.begin[k]);
}

Places places_of(CopyParams const& p) {
    Places places = {};
    for (int k = 0; k < MAX_COPIES_PER_LAUNCH; ++k) {
        places.begin[k] = k < p.count ? places.blocks : ~0u;
        if (k < p.count) places.blocks += unsigned((p.copies[k].bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
    }
    return places;
}

}  // namespace

void multi_tensor_copy(CopyParams const& p, Queue const& queue) {
    Places const places = places_of(p);
    unsigned const blocks = places.blocks + (p.numbers ? 1 : 0);
    if (blocks) copy_tensors_kernel<<<blocks, THREADS, 0, queue.stream>>>(p, places);
}

}  // namespace nurec::cuda
