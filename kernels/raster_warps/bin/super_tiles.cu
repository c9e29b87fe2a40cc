// SPDX-License-Identifier: Apache-2.0
// Turns entries of super-tiles into lists. The sort sees one entry for up to 16 lists of a super-tile. Then warps
// count chunks of sorted entries list by list, and write them to where their lists begin.
#include "super_tiles.cuh"

#include "../../common/launch.cuh"
#include "../../common/look_back.cuh"
#include "../../common/sort.h"

namespace nurec::cuda {
namespace {

constexpr int ROWS = 2, CHUNK_ENTRIES = 32 * ROWS;  // of 32 entries; entries that a warp takes at a time

static_assert(CHUNK_ENTRIES < 256);  // counts are bytes

// A chunk has entries of one super-tile or of a few. The pair (chunk w, super-tile c) has the unique number w + c.
struct SortedChunks {
    uint8_t* counts;  // [chunks + super-tiles, SUPER_TILE_LISTS] entries of each list
    int* begins;      // [super-tiles + 1] first entry of a super-tile or of a later one
    int* totals;      // [lists] zeros at first
    int64_t super_tiles, lists;
};

// The entries of a lane: one of each row of the chunk.
struct LaneEntries {
    int first;                   // the lane's first entry
    uint32_t super_tiles[ROWS];  // NO_SUPER_TILE after the last entry
    uint32_t lists[ROWS];
};

constexpr uint32_t NO_SUPER_TILE = ~0u;

__device__ inline int64_t chunk_of_warp() {
    return (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32;
}

__device__ inline LaneEntries load_chunk(SuperTileEntries const& sorted, int64_t chunk, int64_t n) {
    LaneEntries own = {int(CHUNK_ENTRIES * chunk + threadIdx.x % 32), {}, {}};
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        bool const there = own.first + 32 * k < n;
        own.lists[k] = there ? sorted.lists[own.first + 32 * k] : 0;
        own.super_tiles[k] = there ? own.lists[k] >> SUPER_TILE_LISTS : NO_SUPER_TILE;
    }
    return own;
}

// Returns the first super-tile of the chunk from `least` on; NO_SUPER_TILE: there is none.
__device__ inline uint32_t next_super_tile(LaneEntries const& own, uint32_t least) {
    uint32_t found = NO_SUPER_TILE;
#pragma unroll
    for (int k = 0; k < ROWS; ++k)
        if (own.super_tiles[k] >= least) found = smaller(found, own.super_tiles[k]);
    return __reduce_min_sync(ALL_LANES, found);
}

// Returns the lists of one super-tile that this lane's entries enter: bit SUPER_TILE_LISTS * row + list.
__device__ inline uint32_t lists_in(LaneEntries const& own, uint32_t super_tile) {
    static_assert(ROWS == 2 && SUPER_TILE_LISTS == 16);
    auto const of = [&](int k) {
        return own.super_tiles[k] == super_tile ? own.lists[k] & ((1u << SUPER_TILE_LISTS) - 1) : 0;
    };
    return of(0) | of(1) << SUPER_TILE_LISTS;
}

// Stores where super-tiles begin. Entry n stands for all after the last one.
__device__ inline void store_begins(SuperTileEntries const& sorted, LaneEntries const& own, int64_t n,
                                    SortedChunks const& all) {
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        int const e = own.first + 32 * k;
        if (e > n) continue;
        int64_t const before = e ? int64_t(sorted.lists[e - 1] >> SUPER_TILE_LISTS) : -1;
        int64_t const here = e < n ? int64_t(own.super_tiles[k]) : all.super_tiles;
        for (int64_t c = before + 1; c <= here; ++c) all.begins[c] = e;
    }
}

__global__ void count_chunk_entries_kernel(SuperTileEntries sorted, SortedChunks all) {
    wait_then_launch_dependents();
    int64_t const chunk = chunk_of_warp(), n = sorted.n();
    if (CHUNK_ENTRIES * chunk > n) return;
    LaneEntries const own = load_chunk(sorted, chunk, n);
    store_begins(sorted, own, n, all);
    int const lane = int(threadIdx.x) % 32;
    for (uint32_t c = next_super_tile(own, 0); c != NO_SUPER_TILE; c = next_super_tile(own, c + 1)) {
        auto const row = uint32_t(__popc(transposed(lists_in(own, c))));
        uint32_t const mine = row + __shfl_xor_sync(ALL_LANES, row, SUPER_TILE_LISTS);
        if (lane >= SUPER_TILE_LISTS) continue;
        all.counts[SUPER_TILE_LISTS * (chunk + c) + lane] = uint8_t(mine);
        if (mine) atomicAdd(all.totals + SUPER_TILE_LISTS * c + lane, int(mine));
    }
}

// A thread has a list; the thread after the last list stores where all lists end.
__global__ void find_list_offsets_kernel(SuperTileEntries sorted, SortedChunks all, uint64_t* states, unsigned* next,
                                         ListEntries out, int64_t* needed) {
    wait_then_launch_dependents();
    int64_t const tile = fetch_tile(next), list = THREADS * tile + threadIdx.x;
    int64_t const begin = thread_offset<THREADS / 32>(states, tile, list < all.lists ? all.totals[list] : 0);
    if (list <= all.lists) out.offsets[list] = smaller(begin, out.capacity);
    if (list == 0) *needed = sorted.counts->needed();
}

// Returns the entries that a list has in earlier chunks.
__device__ inline uint32_t entries_in_earlier_chunks(SortedChunks const& all, int64_t chunk, uint32_t super_tile) {
    int const lane = int(threadIdx.x) % 32, list = lane % SUPER_TILE_LISTS;
    int64_t const first = all.begins[super_tile] / CHUNK_ENTRIES;
    uint32_t mine = 0;
#pragma unroll 4
    for (int64_t w = first + lane / SUPER_TILE_LISTS; w < chunk; w += 32 / SUPER_TILE_LISTS)
        mine += all.counts[SUPER_TILE_LISTS * (w + super_tile) + list];
    return mine + __shfl_xor_sync(ALL_LANES, mine, SUPER_TILE_LISTS);
}

// Writes the entries of a chunk. On lane k, `at` is where those of list k % SUPER_TILE_LISTS go.
__device__ inline void write_chunk(LaneEntries const& own, uint32_t super_tile, uint32_t const (&gaussians)[ROWS],
                                   uint32_t at, ListEntries const& out) {
    int const lane = int(threadIdx.x) % 32;
    unsigned const lower = (1u << lane) - 1;
    auto const capacity = uint32_t(smaller(out.capacity, int64_t(~0u)));
    uint32_t const lists = lists_in(own, super_tile), who = transposed(lists);
    uint32_t const first_row = __shfl_xor_sync(ALL_LANES, uint32_t(__popc(who)), SUPER_TILE_LISTS);
    if (lane >= SUPER_TILE_LISTS) at += first_row;
#pragma unroll
    for (int k = 0; k < ROWS * SUPER_TILE_LISTS; ++k) {
        unsigned const all = __shfl_sync(ALL_LANES, who, k);
        uint32_t const place = __shfl_sync(ALL_LANES, at, k) + uint32_t(__popc(all & lower));
        if ((lists >> k & 1) && place < capacity) out.gaussians[place] = int(gaussians[k / SUPER_TILE_LISTS]);
    }
}

// Fills the rest of the array with zeros, which no offset covers.
__device__ inline void fill_rest(SortedChunks const& all, ListEntries const& out) {
    int64_t const step = gridDim.x * int64_t(blockDim.x);
    int64_t e = out.offsets[all.lists] + blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    for (; e < out.capacity; e += step) out.gaussians[e] = 0;
}

__device__ inline void list_chunk(SuperTileEntries const& sorted, int64_t chunk, int64_t n, SortedChunks const& all,
                                  ListEntries const& out) {
    LaneEntries const own = load_chunk(sorted, chunk, n);
    uint32_t gaussians[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; ++k) gaussians[k] = own.first + 32 * k < n ? sorted.gaussians[own.first + 32 * k] : 0;
    for (uint32_t c = next_super_tile(own, 0); c != NO_SUPER_TILE; c = next_super_tile(own, c + 1)) {
        int64_t const list = smaller(SUPER_TILE_LISTS * int64_t(c) + threadIdx.x % SUPER_TILE_LISTS, all.lists);
        uint32_t const before = entries_in_earlier_chunks(all, chunk, c);
        write_chunk(own, c, gaussians, uint32_t(out.offsets[list]) + before, out);
    }
}

__global__ void write_lists_kernel(SuperTileEntries sorted, SortedChunks all, ListEntries out) {
    wait_then_launch_dependents();
    int64_t const chunk = chunk_of_warp(), n = sorted.n();
    if (CHUNK_ENTRIES * chunk < n) list_chunk(sorted, chunk, n, all, out);
    fill_rest(all, out);
}

SuperTileEntries sorted_by_super_tile(SuperTileEntries const& entries, int64_t super_tiles, Zeros& zeros,
                                      Queue const& queue) {
    auto const array = [&] { return queue.memory.array<uint32_t>(entries.capacity); };
    SuperTileEntries const sorted = {array(), array(), entries.counts, entries.capacity};
    Pairs pairs = {entries.capacity, entries.lists, entries.gaussians, sorted.lists, sorted.gaussians};
    pairs.there = &entries.counts->entries, pairs.lowest = SUPER_TILE_LISTS;
    sort_pairs(pairs, bits_for(super_tiles), zeros, queue);
    return sorted;
}

// Returns the zeros that make_lists takes: states of tiles, the next tile, and totals.
int64_t zeros_for(WarpTiles const& warp_tiles) {
    return blocks_for(warp_tiles.lists() + 1) + 1 + SUPER_TILE_LISTS / 2 * warp_tiles.super_tiles();
}

}  // namespace

int64_t zeros_to_list(WarpTiles const& warp_tiles, int64_t capacity) {
    return words_to_sort(capacity, bits_for(warp_tiles.super_tiles())) + zeros_for(warp_tiles);
}

void make_lists(SuperTileEntries const& entries, WarpTiles const& warp_tiles, ListEntries const& out, int64_t* needed,
                Zeros& zeros, Queue const& queue) {
    int64_t const super_tiles = warp_tiles.super_tiles(), lists = warp_tiles.lists(),
                  chunks = entries.capacity / CHUNK_ENTRIES + 1;
    SuperTileEntries const sorted = sorted_by_super_tile(entries, super_tiles, zeros, queue);
    unsigned const tiles = blocks_for(lists + 1), blocks = blocks_for(32 * chunks);
    auto* const states = take<uint64_t>(zeros, zeros_for(warp_tiles), queue);
    auto* const next = reinterpret_cast<unsigned*>(states + tiles);
    SortedChunks const all = {queue.memory.array<uint8_t>(SUPER_TILE_LISTS * (chunks + super_tiles)),
                              queue.memory.array<int>(super_tiles + 1), reinterpret_cast<int*>(next + 2), super_tiles,
                              lists};
    launch_pdl(count_chunk_entries_kernel, blocks, THREADS, queue, sorted, all);
    launch_pdl(find_list_offsets_kernel, tiles, THREADS, queue, sorted, all, states, next, out, needed);
    launch_pdl(write_lists_kernel, blocks, THREADS, queue, sorted, all, out);
}

}  // namespace nurec::cuda
