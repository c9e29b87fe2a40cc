// SPDX-License-Identifier: Apache-2.0
#include "../common/launch.cuh"
#include "lists.h"
#include "../common/sort.h"

namespace nurec::cuda {
namespace {

constexpr int ENTRIES_PER_THREAD = 4;  // entries of a thread, THREADS apart

// offsets[t] is the first entry of tile t or of a later one. `tiles` [capacity], of the n entries those of each.
__global__ void find_tile_offsets_kernel(uint32_t const* tiles, int64_t const* entries, int64_t n_tiles, Entries out) {
    int64_t const n = min(*entries, out.capacity),
                  first = ENTRIES_PER_THREAD * THREADS * int64_t(blockIdx.x) + threadIdx.x;
    int64_t before[ENTRIES_PER_THREAD], here[ENTRIES_PER_THREAD];
#pragma unroll
    for (int k = 0; k < ENTRIES_PER_THREAD; ++k) {
        int64_t const e = first + k * THREADS;
        before[k] = e > 0 && e <= n ? int64_t(tiles[e - 1]) : -1, here[k] = e < n ? int64_t(tiles[e]) : n_tiles;
    }
#pragma unroll
    for (int k = 0; k < ENTRIES_PER_THREAD; ++k) {
        int64_t const e = first + k * THREADS;
        if (e >= n && e < out.capacity) out.gaussians[e] = 0;
        for (int64_t t = before[k] + 1; e <= n && t <= here[k]; ++t) out.offsets[t] = e;
    }
}

}  // namespace

Written entries_with_capacity(int64_t entries, int64_t const* n, Queue const& queue) {
    return {queue.memory.array<uint32_t>(entries), queue.memory.array<uint32_t>(entries), n};
}

void sort_into_lists(Written const& written, int64_t n_tiles, Entries const& out, Queue const& queue) {
    int64_t const capacity = out.capacity;
    auto* const tiles = queue.memory.array<uint32_t>(capacity);
    sort_pairs({capacity, written.tiles, written.gaussians, tiles, nullptr, written.n, nullptr, out.gaussians},
               bits_for(n_tiles), queue);
    auto const blocks = blocks_for((capacity + ENTRIES_PER_THREAD) / ENTRIES_PER_THREAD);
    find_tile_offsets_kernel<<<blocks, THREADS, 0, queue.stream>>>(tiles, written.n, n_tiles, out);
}

}  // namespace nurec::cuda
