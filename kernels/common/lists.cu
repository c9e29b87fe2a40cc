// SPDX-License-Identifier: Apache-2.0
#include "launch.cuh"
#include "lists.h"
#include "sort.h"

namespace nurec::cuda {
namespace {

// offsets[t] is the first entry of tile t or of a later one.
__global__ void offsets_kernel(Written sorted, int64_t n_tiles, Entries out) {
    int64_t const e = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (e > out.room) return;
    int64_t const n = min(*sorted.n, out.room);
    if (e < out.room) out.gaussians[e] = e < n ? int64_t(sorted.gaussians[e]) : 0;
    if (e > n) return;
    int64_t const before = e == 0 ? -1 : int64_t(sorted.tiles[e - 1]),
                  here = e < n ? int64_t(sorted.tiles[e]) : n_tiles;
    for (int64_t t = before + 1; t <= here; ++t) out.offsets[t] = e;
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
    offsets_kernel<<<blocks_for(room + 1), THREADS, 0, queue.stream>>>(sorted, n_tiles, out);
}

}  // namespace nurec::cuda
