// SPDX-License-Identifier: Apache-2.0
// A block of threads takes a block of Gaussians, and one view after another. The test is the projection's first one. A
// second kernel, of one block of threads, lists the visible blocks.
#include "../common/flat.cuh"
#include "../math/activate.cuh"
#include "visible_blocks.h"
#include "visibility.cuh"

namespace nurec::cuda {
namespace {

static_assert(THREADS == BLOCK_GAUSSIANS);

struct Extent {  // of a Gaussian in the world
    Vec3<float> mean, s;
    float reach, lidar_reach;  // 0: too transparent to be seen
};

template <bool SWEEPS>
__device__ Extent extent_of(BlockScene const& in, int64_t i) {
    Vec3<float> const s = load3(in.log_scales, i);
    float const reach = reach_of(sigmoid(in.opacity_logits[i]));
    bool const own = SWEEPS && in.lidar_logits;
    float const by_lidar = own ? reach_of(sigmoid(in.lidar_logits[in.columns * i])) : reach;
    return {load3(in.means, i), {exp(s.x), exp(s.y), exp(s.z)}, reach, by_lidar};
}

template <bool SWEEPS>
__device__ bool sees(ViewRow<float> const& row, BlockView const& by, Extent const& g) {
    ProjectParams p = {};
    Vec3<float> const mean = g.mean - row.centre, still = {0, 0, 0};
    if (SWEEPS && by.occupied) {
        p.cells = by.cells;
        return g.lidar_reach > 0 &&
               may_see<false>(p, row.view, by.occupied, mean, g.s, still, g.lidar_reach, OwnLens());
    }
    if (!(g.reach > 0)) return false;
    if (by.has_lens) return may_see<true>(p, row.view, nullptr, mean, g.s, still, g.reach, row.lens);
    return may_see<true>(p, row.view, nullptr, mean, g.s, still, g.reach, OwnLens());
}

// SWEEPS: some view may be a lidar's.
template <bool SWEEPS>
__global__ void __launch_bounds__(THREADS) mark_visible_blocks_kernel(BlockScene in, uint8_t* visible) {
    __shared__ ViewRow<float> row;
    int64_t const i = first_row() + threadIdx.x;
    bool some = smaller(first_row() + THREADS, in.n) > in.still;  // the times of the views place those that move
    Extent const g = some || i >= in.n ? Extent{} : extent_of<SWEEPS>(in, i);
    for (int64_t v = 0; !some && v < in.views; ++v) {
        copy_numbers(row, in.view[v].row);
        __syncthreads();
        some = __syncthreads_or(sees<SWEEPS>(row, in.view[v], g));
    }
    if (threadIdx.x == 0) visible[blockIdx.x] = some;
}

bool has_sweeps(BlockScene const& in) {
    for (int64_t v = 0; v < in.views; ++v)
        if (in.view[v].occupied) return true;
    return false;
}

constexpr int LIST_THREADS = 1024, FLAGS = 16;  // that a thread reads at once

// Bits of a thread's flags; 0 after the last one of n. Flags begin at a multiple of 16 bytes, and end at one.
__device__ unsigned flags_from(uint8_t const* visible, int64_t first, int64_t n) {
    if (first >= n) return 0;
    uint4 const four = *reinterpret_cast<uint4 const*>(visible + first);
    unsigned const words[] = {four.x, four.y, four.z, four.w};
    unsigned bits = 0;
#pragma unroll
    for (int k = 0; k < FLAGS; ++k) bits |= unsigned(first + k < n && (words[k / 4] >> 8 * (k % 4) & 1)) << k;
    return bits;
}

// Lists the visible ones of n blocks, ascending.
__global__ void __launch_bounds__(LIST_THREADS)
    list_visible_blocks_kernel(uint8_t const* visible, int64_t n, int* listed) {
    wait_then_launch_dependents();
    __shared__ uint64_t warps[LIST_THREADS / 32];
    int count = 0;
    for (int64_t begin = 0; begin < n; begin += FLAGS * LIST_THREADS) {
        int64_t const first = begin + FLAGS * int64_t(threadIdx.x);
        unsigned bits = flags_from(visible, first, n);
        Sums const sums = sums_before(uint64_t(__popc(bits)), warps);
        for (int* to = listed + 1 + count + sums.before; bits; bits &= bits - 1)
            *to++ = int(first) + __ffs(int(bits)) - 1;
        count += int(sums.all);
        __syncthreads();
    }
    if (threadIdx.x == 0) listed[0] = count;
}

}  // namespace

void visible_blocks(BlockScene const& in, int* listed, Queue const& queue) {
    int64_t const n = blocks_of_store(in.n);
    auto* const visible = queue.memory.array<uint8_t>((n + FLAGS - 1) / FLAGS * FLAGS);
    auto* const mark = has_sweeps(in) ? mark_visible_blocks_kernel<true> : mark_visible_blocks_kernel<false>;
    if (n) mark<<<unsigned(n), THREADS, 0, queue.stream>>>(in, visible);
    launch_pdl(list_visible_blocks_kernel, 1, LIST_THREADS, queue, visible, n, listed);
}

}  // namespace nurec::cuda
