// SPDX-License-Identifier: Apache-2.0
// Lists as parts: first those of lists that have many, then of those that have two, then the other lists, each the
// longest first. So the GPU does not wait for one that begins late, and groups of a warp have parts of about the same
// length. Neighbours whose lists are about as long stay together.
#pragma once

#include "../common/launch.cuh"
#include "../common/look_back.cuh"
#include "parts.cuh"

namespace nurec::cuda {

// `before`: parts of lists that have many, but the last of each list, in any order.
struct Cut {
    int* before;                       // [most]
    int *n_before, *n_many, *n_parts;  // how many they are; parts of lists that have many, that have several
    unsigned* next;                    // 0 at first: the turn that nobody has
    int *passed, *done;  // [A] 0 at first: parts of a list of which it is known what passes; that are blended
};

constexpr int PAIR = 2;  // parts of a list that has no passes: it has many if it has more

constexpr int CLASSES = THREADS;               // of lists, by the entries of a part: a thread has one
constexpr int IN_OCTAVE = 16;                  // of them
constexpr int MANY_CLASSES = IN_OCTAVE;        // whose lists have many parts, of two thirds of the length at least
constexpr int CUT_CLASSES = 2 * IN_OCTAVE;     // several: two have half of it at least
constexpr int OTHERS = CLASSES - CUT_CLASSES;  // enough for 2^14 entries

struct Classes {
    int* parts;  // [CLASSES] of all lists; zeros at first
    int* taken;  // [CLASSES] likewise: of those, the parts that have a place
};

// Of a list: its parts, and their class, the longest first.
struct Kind {
    int parts, of;
};

__device__ inline int steps_between(int64_t low, int64_t high) {
    return int(log2f(float(high + 1) / float(low + 1)) * float(IN_OCTAVE));
}

__device__ inline Kind kind_of(int64_t const* offsets, int64_t lists, int64_t length, int64_t b) {
    if (b >= lists) return {0, 0};
    int64_t const entries = offsets[b + 1] - offsets[b];
    int const parts = parts_of(entries, length), each = (int(entries) + parts - 1) / parts;
    int const shorter = smaller(steps_between(each, length), IN_OCTAVE - 1);
    if (parts > 1) return {parts, parts > PAIR ? shorter : MANY_CLASSES + shorter};
    return {1, CLASSES - 1 - smaller(steps_between(0, each), OTHERS - 1)};
}

// Of the lists of a block: parts of each class, and where among those of its class a list's are.
__device__ inline int count_classes(Kind const& mine, int (&counts)[CLASSES]) {
    counts[threadIdx.x] = 0;
    __syncthreads();
    int const before = mine.parts ? atomicAdd(counts + mine.of, mine.parts) : 0;
    __syncthreads();
    return before;
}

static __global__ void count_segments_kernel(int64_t const* offsets, int64_t lists, int64_t length, Classes all) {
    wait_then_launch_dependents();
    __shared__ int counts[CLASSES];
    count_classes(kind_of(offsets, lists, length, blockIdx.x * int64_t(THREADS) + threadIdx.x), counts);
    if (counts[threadIdx.x]) atomicAdd(all.parts + threadIdx.x, counts[threadIdx.x]);
}

// By a warp, of a list each.
__device__ inline void note_cut(Cut const& cut, int64_t first, int parts) {
    int const n = parts > PAIR ? parts - 1 : 0;
    if (!__any_sync(ALL_LANES, n)) return;
    WarpOffsets const own = warp_offsets(0, n);
    int const begin = __shfl_sync(ALL_LANES, threadIdx.x % 32 ? 0 : atomicAdd(cut.n_before, int(own.all)), 0);
    for (int k = 0; k < n; ++k) cut.before[begin + own.mine + k] = int(first + k);
}

// A thread has a list, and the one behind the last list says where all parts end.
static __global__ void split_lists_kernel(int64_t const* offsets, int64_t lists, Parts parts, Cut cut, Classes all) {
    wait_then_launch_dependents();
    __shared__ int counts[CLASSES], begins[CLASSES];
    __shared__ uint64_t of_warps[THREADS / 32];
    int64_t const b = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    Kind const mine = kind_of(offsets, lists, parts.length, b);
    int const place = count_classes(mine, counts), own = counts[threadIdx.x];
    Sums const sums = sums_before(uint64_t(all.parts[threadIdx.x]), of_warps);
    auto const before = int(sums.before), end = int(sums.all);
    begins[threadIdx.x] = before + (own ? atomicAdd(all.taken + threadIdx.x, own) : 0);
    if (threadIdx.x == MANY_CLASSES && blockIdx.x == 0) *cut.n_many = before;
    if (threadIdx.x == CUT_CLASSES && blockIdx.x == 0) *cut.n_parts = before;
    __syncthreads();
    int64_t const first = b < lists ? begins[mine.of] + place : end;
    if (b <= lists) parts.first[b] = first;
    for (int k = 0; k < mine.parts; ++k) parts.bundle[first + k] = int(b);
    note_cut(cut, first, mine.parts);
    for (int64_t s = end + b; s < parts.most; s += gridDim.x * int64_t(THREADS)) parts.bundle[s] = -1;
}

inline Cut cut_lists(RenderParams const& p, Parts const& parts, Queue const& queue) {
    auto* const zero = zeros<int>(2 * CLASSES + 4 + 2 * p.n_tiles, queue);
    Classes const classes = {zero, zero + CLASSES};
    int *const counts = zero + 2 * CLASSES, *const of_lists = counts + 4;
    auto* const next = reinterpret_cast<unsigned*>(counts + 3);
    Cut const cut = {
        queue.memory.array<int>(parts.most), counts, counts + 1, counts + 2, next, of_lists, of_lists + p.n_tiles};
    unsigned const blocks = blocks_for(p.n_tiles + 1);
    launch_pdl(count_segments_kernel, blocks, THREADS, queue, p.offsets, p.n_tiles, parts.length, classes);
    launch_pdl(split_lists_kernel, blocks, THREADS, queue, p.offsets, p.n_tiles, parts, cut, classes);
    return cut;
}

}  // namespace nurec::cuda
