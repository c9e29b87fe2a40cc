// SPDX-License-Identifier: Apache-2.0
#include "launch.cuh"
#include "lists.h"
#include "sort.h"

namespace nurec::cuda {
namespace {

constexpr int AT_ONCE = 4;  // entries of a thread, THREADS apart

// offsets[t] is the first entry of tile t or of a later one.
__global__ void offsets_kernel(Written sorted, int64_t n_tiles, Entries out) {
    int64_t const n = min(*sorted.n, out.room), first = AT_ONCE * THREADS * int64_t(blockIdx.x) + threadIdx.x;
    int64_t before[AT_ONCE], here[AT_ONCE], gaussian[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
        int64_t const e = first + k * THREADS;
        before[k] = e > 0 && e <= n ? int64_t(sorted.tiles[e - 1]) : -1;
        here[k] = e < n ? int64_t(sorted.tiles[e]) : n_tiles, gaussian[k] = e < n ? int64_t(sorted.gaussians[e]) : 0;
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
        int64_t const e = first + k * THREADS;
        if (e < out.room) out.gaussians[e] = gaussian[k];
        for (int64_t t = before[k] + 1; e <= n && t <= here[k]; ++t) out.offsets[t] = e;
    }
}

}  // namespace

Written room_for(int64_t entries, int64_t const* n, Queue const& queue) {
    return {queue.memory.array<uint32_t>(entries), queue.memory.array<uint32_t>(entries), n};
}

void sort_into_lists(Written const& written, int64_t n_tiles, Entries const& out, Queue const& queue) {
    int64_t const room = out.room;
    Written const sorted = room_for(room, written.n, queue);
    sort_pairs({room, written.tiles, written.gaussians, sorted.tiles, sorted.gaussians, written.n}, bits_for(n_tiles),
               queue);
    offsets_kernel<<<blocks_for((room + AT_ONCE) / AT_ONCE), THREADS, 0, queue.stream>>>(sorted, n_tiles, out);
}

}  // namespace nurec::cuda
