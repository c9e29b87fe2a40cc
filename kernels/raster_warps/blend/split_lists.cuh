// SPDX-License-Identifier: Apache-2.0
// Splits lists into segments and orders them: lists with three or more segments first, then lists with two, then
// unsplit lists; within each group the longest first. So the GPU does not wait for a long segment that starts late, and
// the groups of a warp get segments of about the same length. Neighbouring lists of about the same length stay
// together.
#pragma once

#include "../../common/launch.cuh"
#include "../../common/look_back.cuh"
#include "segments.cuh"

namespace nurec::cuda {

// `before`: the segments of lists with three or more segments, except each list's last one, in any order.
struct SplitLists {
    int* before;                         // [most]
    int *n_before, *n_many, *n_several;  // their number; segments of lists with three or more, and with two or more
    unsigned* next;                      // 0 at first: the next ticket
    int *ready, *blended;  // [A] 0 at first: segments of a list with stored transmittance; blended segments
};

constexpr int PAIR = 2;  // segments of a list that needs no pass of its own for transmittances

constexpr int CLASSES = THREADS;                      // of lengths, one a thread
constexpr int CLASSES_PER_OCTAVE = 16;                // of lengths
constexpr int FIRST_PAIR_CLASS = CLASSES_PER_OCTAVE;  // lists of many segments, of two thirds of the length at least
constexpr int FIRST_UNSPLIT_CLASS = 2 * CLASSES_PER_OCTAVE;     // several: two have half of it at least
constexpr int UNSPLIT_CLASSES = CLASSES - FIRST_UNSPLIT_CLASS;  // enough for 2^14 entries

struct LengthClasses {
    int* segments;  // [CLASSES] of all lists; zeros at first
    int* taken;     // [CLASSES] zeros at first; those that have a place
};

// The number of segments of a list, and their class: classes ascend as lengths fall.
struct LengthClass {
    int segments, of;
};

__device__ inline int steps_between(int64_t low, int64_t high) {
    return int(log2f(float(high + 1) / float(low + 1)) * float(CLASSES_PER_OCTAVE));
}

__device__ inline LengthClass length_class_of(int64_t const* offsets, int64_t lists, int64_t length, int64_t b) {
    if (b >= lists) return {0, 0};
    int64_t const entries = offsets[b + 1] - offsets[b];
    int const segments = parts_of(entries, length), each = (int(entries) + segments - 1) / segments;
    int const shorter = smaller(steps_between(each, length), CLASSES_PER_OCTAVE - 1);
    if (segments > 1) return {segments, segments > PAIR ? shorter : FIRST_PAIR_CLASS + shorter};
    return {1, CLASSES - 1 - smaller(steps_between(0, each), UNSPLIT_CLASSES - 1)};
}

// Counts the segments of each class over a block's lists. Returns where this list's segments begin in their class.
__device__ inline int count_classes(LengthClass const& mine, int (&counts)[CLASSES]) {
    counts[threadIdx.x] = 0;
    __syncthreads();
    int const before = mine.segments ? atomicAdd(counts + mine.of, mine.segments) : 0;
    __syncthreads();
    return before;
}

static __global__ void count_segments_kernel(int64_t const* offsets, int64_t lists, int64_t length, LengthClasses all) {
    wait_then_launch_dependents();
    __shared__ int counts[CLASSES];
    count_classes(length_class_of(offsets, lists, length, blockIdx.x * int64_t(THREADS) + threadIdx.x), counts);
    if (counts[threadIdx.x]) atomicAdd(all.segments + threadIdx.x, counts[threadIdx.x]);
}

// Appends the segments of a list to `before`. Each lane of a warp has a list.
__device__ inline void store_split_segments(SplitLists const& split, int64_t first, int segments) {
    int const n = segments > PAIR ? segments - 1 : 0;
    if (!__any_sync(ALL_LANES, n)) return;
    WarpOffsets const own = warp_offsets(0, n);
    int const begin = __shfl_sync(ALL_LANES, threadIdx.x % 32 ? 0 : atomicAdd(split.n_before, int(own.all)), 0);
    for (int k = 0; k < n; ++k) split.before[begin + own.mine + k] = int(first + k);
}

// Each thread has a list; the thread after the last list stores where all segments end.
static __global__ void split_lists_kernel(int64_t const* offsets, int64_t lists, Segments segments, SplitLists split,
                                          LengthClasses all) {
    wait_then_launch_dependents();
    __shared__ int counts[CLASSES], begins[CLASSES];
    __shared__ uint64_t of_warps[THREADS / 32];
    int64_t const b = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    LengthClass const mine = length_class_of(offsets, lists, segments.length, b);
    int const place = count_classes(mine, counts), own = counts[threadIdx.x];
    Sums const sums = sums_before(uint64_t(all.segments[threadIdx.x]), of_warps);
    auto const before = int(sums.before), end = int(sums.all);
    begins[threadIdx.x] = before + (own ? atomicAdd(all.taken + threadIdx.x, own) : 0);
    if (threadIdx.x == FIRST_PAIR_CLASS && blockIdx.x == 0) *split.n_many = before;
    if (threadIdx.x == FIRST_UNSPLIT_CLASS && blockIdx.x == 0) *split.n_several = before;
    __syncthreads();
    int64_t const first = b < lists ? begins[mine.of] + place : end;
    if (b <= lists) segments.first[b] = first;
    for (int k = 0; k < mine.segments; ++k) segments.list[first + k] = int(b);
    store_split_segments(split, first, mine.segments);
    for (int64_t s = end + b; s < segments.most; s += gridDim.x * int64_t(THREADS)) segments.list[s] = -1;
}

inline SplitLists split_lists(RenderParams const& p, Segments const& segments, Queue const& queue) {
    auto* const zero = zeros<int>(2 * CLASSES + 4 + 2 * p.n_tiles, queue);
    LengthClasses const classes = {zero, zero + CLASSES};
    int *const counts = zero + 2 * CLASSES, *const of_lists = counts + 4;
    auto* const next = reinterpret_cast<unsigned*>(counts + 3);
    SplitLists const split = {
        queue.memory.array<int>(segments.most), counts, counts + 1, counts + 2, next, of_lists, of_lists + p.n_tiles};
    unsigned const blocks = blocks_for(p.n_tiles + 1);
    launch_pdl(count_segments_kernel, blocks, THREADS, queue, p.offsets, p.n_tiles, segments.length, classes);
    launch_pdl(split_lists_kernel, blocks, THREADS, queue, p.offsets, p.n_tiles, segments, split, classes);
    return split;
}

}  // namespace nurec::cuda
