// SPDX-License-Identifier: Apache-2.0
// From entries of clusters to lists. What is sorted is one entry for the up to 16 lists of a cluster that a Gaussian
// enters. Then warps count windows of sorted entries list by list, and write them to where their lists begin.
#include "clusters.cuh"

#include "../common/launch.cuh"
#include "../common/look_back.cuh"
#include "../common/sort.h"

namespace nurec::cuda {
namespace {

constexpr int ROWS = 2, WINDOW = 32 * ROWS;  // of 32 entries; entries that a warp takes at a time

static_assert(WINDOW < 256);  // counts are bytes

// A window has entries of one cluster or of a few. Window w and cluster c have number w + c, as no other two have.
struct Windows {
    uint8_t* counts;  // [windows + clusters, CLUSTER] entries of each list
    int* begins;      // [clusters + 1] first entry of a cluster or of a later one
    int* totals;      // [lists] zeros at first
    int64_t clusters, lists;
};

// What a lane has of a window: one entry of each row.
struct Own {
    int first;                // the lane's first entry
    uint32_t clusters[ROWS];  // NO_CLUSTER behind the last entry
    uint32_t lists[ROWS];
};

constexpr uint32_t NO_CLUSTER = ~0u;

__device__ inline int64_t window_of_warp() {
    return (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32;
}

__device__ inline Own load_window(ClusterEntries const& sorted, int64_t window, int64_t n) {
    Own own = {int(WINDOW * window + threadIdx.x % 32), {}, {}};
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        bool const there = own.first + 32 * k < n;
        own.lists[k] = there ? sorted.lists[own.first + 32 * k] : 0;
        own.clusters[k] = there ? own.lists[k] >> CLUSTER : NO_CLUSTER;
    }
    return own;
}

// The first cluster of the window, of those from `least` on; NO_CLUSTER: there is none.
__device__ inline uint32_t next_cluster(Own const& own, uint32_t least) {
    uint32_t found = NO_CLUSTER;
#pragma unroll
    for (int k = 0; k < ROWS; ++k)
        if (own.clusters[k] >= least) found = smaller(found, own.clusters[k]);
    return __reduce_min_sync(ALL_LANES, found);
}

// Lists of one cluster that a lane's entries enter: bit CLUSTER * row + list.
__device__ inline uint32_t lists_in(Own const& own, uint32_t cluster) {
    static_assert(ROWS == 2 && CLUSTER == 16);
    auto const of = [&](int k) { return own.clusters[k] == cluster ? own.lists[k] & ((1u << CLUSTER) - 1) : 0; };
    return of(0) | of(1) << CLUSTER;
}

// Entry n stands for all behind the last.
__device__ inline void note_begins(ClusterEntries const& sorted, Own const& own, int64_t n, Windows const& all) {
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        int const e = own.first + 32 * k;
        if (e > n) continue;
        int64_t const before = e ? int64_t(sorted.lists[e - 1] >> CLUSTER) : -1;
        int64_t const here = e < n ? int64_t(own.clusters[k]) : all.clusters;
        for (int64_t c = before + 1; c <= here; ++c) all.begins[c] = e;
    }
}

__global__ void count_chunk_entries_kernel(ClusterEntries sorted, Windows all) {
    wait_then_launch_dependents();
    int64_t const window = window_of_warp(), n = sorted.n();
    if (WINDOW * window > n) return;
    Own const own = load_window(sorted, window, n);
    note_begins(sorted, own, n, all);
    int const lane = int(threadIdx.x) % 32;
    for (uint32_t c = next_cluster(own, 0); c != NO_CLUSTER; c = next_cluster(own, c + 1)) {
        auto const row = uint32_t(__popc(transposed(lists_in(own, c))));
        uint32_t const mine = row + __shfl_xor_sync(ALL_LANES, row, CLUSTER);
        if (lane >= CLUSTER) continue;
        all.counts[CLUSTER * (window + c) + lane] = uint8_t(mine);
        if (mine) atomicAdd(all.totals + CLUSTER * c + lane, int(mine));
    }
}

// A thread a list, and the last one what lies behind all.
__global__ void find_list_offsets_kernel(ClusterEntries sorted, Windows all, uint64_t* states, unsigned* next,
                                         ListEntries out, int64_t* needed) {
    wait_then_launch_dependents();
    int64_t const tile = fetch_tile(next), list = THREADS * tile + threadIdx.x;
    int64_t const begin = thread_offset<THREADS / 32>(states, tile, list < all.lists ? all.totals[list] : 0);
    if (list <= all.lists) out.offsets[list] = smaller(begin, out.room);
    if (list == 0) *needed = sorted.counts->needed();
}

// Entries that a list has in windows before this one.
__device__ inline uint32_t entries_of_windows_before(Windows const& all, int64_t window, uint32_t cluster) {
    int const lane = int(threadIdx.x) % 32, list = lane % CLUSTER;
    int64_t const first = all.begins[cluster] / WINDOW;
    uint32_t mine = 0;
#pragma unroll 4
    for (int64_t w = first + lane / CLUSTER; w < window; w += 32 / CLUSTER)
        mine += all.counts[CLUSTER * (w + cluster) + list];
    return mine + __shfl_xor_sync(ALL_LANES, mine, CLUSTER);
}

// Lane k: those of list k % CLUSTER go from `at` on.
__device__ inline void write_window(Own const& own, uint32_t cluster, uint32_t const (&gaussians)[ROWS], uint32_t at,
                                    ListEntries const& out) {
    int const lane = int(threadIdx.x) % 32;
    unsigned const lower = (1u << lane) - 1;
    auto const room = uint32_t(smaller(out.room, int64_t(~0u)));
    uint32_t const lists = lists_in(own, cluster), who = transposed(lists);
    uint32_t const first_row = __shfl_xor_sync(ALL_LANES, uint32_t(__popc(who)), CLUSTER);
    if (lane >= CLUSTER) at += first_row;
#pragma unroll
    for (int k = 0; k < ROWS * CLUSTER; ++k) {
        unsigned const all = __shfl_sync(ALL_LANES, who, k);
        uint32_t const place = __shfl_sync(ALL_LANES, at, k) + uint32_t(__popc(all & lower));
        if ((lists >> k & 1) && place < room) out.gaussians[place] = int(gaussians[k / CLUSTER]);
    }
}

// Zeros behind the last list, which no offset covers.
__device__ inline void fill_rest(Windows const& all, ListEntries const& out) {
    int64_t const step = gridDim.x * int64_t(blockDim.x);
    int64_t e = out.offsets[all.lists] + blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    for (; e < out.room; e += step) out.gaussians[e] = 0;
}

__device__ inline void list_window(ClusterEntries const& sorted, int64_t window, int64_t n, Windows const& all,
                                   ListEntries const& out) {
    Own const own = load_window(sorted, window, n);
    uint32_t gaussians[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; ++k) gaussians[k] = own.first + 32 * k < n ? sorted.gaussians[own.first + 32 * k] : 0;
    for (uint32_t c = next_cluster(own, 0); c != NO_CLUSTER; c = next_cluster(own, c + 1)) {
        int64_t const list = smaller(CLUSTER * int64_t(c) + threadIdx.x % CLUSTER, all.lists);
        uint32_t const before = entries_of_windows_before(all, window, c);
        write_window(own, c, gaussians, uint32_t(out.offsets[list]) + before, out);
    }
}

__global__ void write_lists_kernel(ClusterEntries sorted, Windows all, ListEntries out) {
    wait_then_launch_dependents();
    int64_t const window = window_of_warp(), n = sorted.n();
    if (WINDOW * window < n) list_window(sorted, window, n, all, out);
    fill_rest(all, out);
}

ClusterEntries sorted_by_cluster(ClusterEntries const& entries, int64_t clusters, Zeros& zeros, Queue const& queue) {
    auto const array = [&] { return queue.memory.array<uint32_t>(entries.room); };
    ClusterEntries const sorted = {array(), array(), entries.counts, entries.room};
    Pairs pairs = {entries.room, entries.lists, entries.gaussians, sorted.lists, sorted.gaussians};
    pairs.there = &entries.counts->entries, pairs.lowest = CLUSTER;
    sort_pairs(pairs, bits_for(clusters), zeros, queue);
    return sorted;
}

// States of tiles of lists, the tile that nobody has, and totals.
int64_t zeros_for(Bundles const& bundles) {
    return blocks_for(bundles.lists() + 1) + 1 + CLUSTER / 2 * bundles.clusters();
}

}  // namespace

int64_t words_to_list(Bundles const& bundles, int64_t room) {
    return words_to_sort(room, bits_for(bundles.clusters())) + zeros_for(bundles);
}

void make_lists(ClusterEntries const& entries, Bundles const& bundles, ListEntries const& out, int64_t* needed,
                Zeros& zeros, Queue const& queue) {
    int64_t const clusters = bundles.clusters(), lists = bundles.lists(), windows = entries.room / WINDOW + 1;
    ClusterEntries const sorted = sorted_by_cluster(entries, clusters, zeros, queue);
    unsigned const tiles = blocks_for(lists + 1), blocks = blocks_for(32 * windows);
    auto* const states = take<uint64_t>(zeros, zeros_for(bundles), queue);
    auto* const next = reinterpret_cast<unsigned*>(states + tiles);
    Windows const all = {queue.memory.array<uint8_t>(CLUSTER * (windows + clusters)),
                         queue.memory.array<int>(clusters + 1), reinterpret_cast<int*>(next + 2), clusters, lists};
    launch_pdl(count_chunk_entries_kernel, blocks, THREADS, queue, sorted, all);
    launch_pdl(find_list_offsets_kernel, tiles, THREADS, queue, sorted, all, states, next, out, needed);
    launch_pdl(write_lists_kernel, blocks, THREADS, queue, sorted, all, out);
}

}  // namespace nurec::cuda
