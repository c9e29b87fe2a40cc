// SPDX-License-Identifier: Apache-2.0
#include "launch.cuh"
#include "lists.h"
#include "sort.h"

namespace nurec::cuda {
namespace {

// offsets[t] is the first entry of tile t or of a later one. What is no entry has a number beyond the last tile.
__global__ void offsets_kernel(uint32_t const* tiles, uint32_t const* sorted, int64_t n_tiles, Entries out) {
    int64_t const e = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (e > out.room) return;
    int64_t const before = e == 0 ? -1 : min(int64_t(tiles[e - 1]), n_tiles);
    int64_t const here = e == out.room ? n_tiles : min(int64_t(tiles[e]), n_tiles);
    for (int64_t t = before + 1; t <= here; ++t) out.offsets[t] = e;
    if (e < out.room) out.gaussians[e] = here < n_tiles ? int64_t(sorted[e]) : 0;
}

}  // namespace

// All bits of a free place's tile are ones, so that it is sorted behind the last.
Written unwritten(int64_t room, Queue const& queue) {
    Written const w = {queue.memory.array<uint32_t>(room), queue.memory.array<uint32_t>(room)};
    cudaMemsetAsync(w.tiles, 0xff, sizeof(uint32_t) * room, queue.stream);
    cudaMemsetAsync(w.gaussians, 0, sizeof(uint32_t) * room, queue.stream);
    return w;
}

void sort_into_lists(Written const& written, int64_t n_tiles, Entries const& out, Queue const& queue) {
    int64_t const room = out.room;
    auto *tiles = queue.memory.array<uint32_t>(room), *gaussians = queue.memory.array<uint32_t>(room);
    if (room) sort_pairs({room, written.tiles, written.gaussians, tiles, gaussians}, bits_for(n_tiles + 1), queue);
    offsets_kernel<<<blocks_for(room + 1), THREADS, 0, queue.stream>>>(tiles, gaussians, n_tiles, out);
}

}  // namespace nurec::cuda
