// SPDX-License-Identifier: Apache-2.0
// The test is the projection's first one: a sphere against the cone of a camera, or against the cells of a lidar that
// hold rays. A first kernel tests the spheres of hidden blocks, a thread each. A second one reads the Gaussians of the
// others, a block of threads each. Then a kernel of one block of threads lists the found blocks.
#include <cfloat>

#include "../common/flat.cuh"
#include "../common/visible.cuh"
#include "../math/activate.cuh"
#include "visible_blocks.h"
#include "visibility.cuh"

namespace nurec::cuda {
namespace {

constexpr int WARPS = THREADS / 32;
constexpr float NO_SPHERE = -1;
// A sphere is larger, for rounding: by a factor, in metres, and in metres for each metre from the origin of the world.
constexpr float WIDER = 1.001f, BESIDE = 0.01f, FAR = 1e-6f;

struct Extent {  // of a Gaussian or a block in the world
    Vec3<float> mean, s;
    float reach, lidar_reach;  // 0: too transparent to be seen
};

__device__ Extent extent_of(BlockScene const& in, int64_t i) {
    Vec3<float> const s = load3(in.log_scales, i);
    float const reach = reach_of(sigmoid(in.opacity_logits[i]));
    float const by_lidar = in.lidar_logits ? reach_of(sigmoid(in.lidar_logits[in.columns * i])) : reach;
    return {load3(in.means, i), {exp(s.x), exp(s.y), exp(s.z)}, reach, by_lidar};
}

__device__ float4* spheres_of(BlockScene const& in) {
    return reinterpret_cast<float4*>(in.spheres);
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

template <bool SWEEPS>
__global__ void __launch_bounds__(THREADS) test_spheres_kernel(BlockScene in, uint8_t* visible) {
    wait_then_launch_dependents();
    __shared__ ViewRow<float> row;
    int64_t const block = first_row() + threadIdx.x, n = blocks_of_store(in.n);
    float4 const sphere = block < n ? spheres_of(in)[block] : float4{0, 0, 0, 0};
    bool some = !(sphere.w >= 0);
    Extent const whole = {{sphere.x, sphere.y, sphere.z}, {sphere.w, sphere.w, sphere.w}, 1, 1};
    for (int64_t v = 0; v < in.views; ++v) {
        __syncthreads();
        copy_numbers(row, in.view[v].row);
        __syncthreads();
        some = some || sees<SWEEPS>(row, in.view[v], whole);
    }
    if (block < n) visible[block] = some;
}

__device__ float max_of_block(float mine, float (&warps)[WARPS]) {
    mine = warp_max(mine);
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    float found = warps[0];
#pragma unroll
    for (int k = 1; k < WARPS; ++k) found = fmaxf(found, warps[k]);
    return found;
}

// The sphere about the Gaussians of a hidden block, without transparent ones. `there`: this thread has a Gaussian. All
// threads of the block call it.
__device__ float4 sphere_of(Extent const& g, bool there) {
    __shared__ float warps[WARPS];
    float const reach = there ? fmaxf(g.reach, g.lidar_reach) : 0, none = -FLT_MAX;
    bool const seen = reach > 0;
    auto const middle = [&](float at) {
        float const high = max_of_block(seen ? at : none, warps), low = -max_of_block(seen ? -at : none, warps);
        return 0.5f * (low + high);
    };
    Vec3<float> const centre = {middle(g.mean.x), middle(g.mean.y), middle(g.mean.z)}, off = g.mean - centre;
    float const radius = sqrtf(dot(off, off)) + reach * fmaxf(g.s.x, fmaxf(g.s.y, g.s.z));
    float const widest = max_of_block(seen ? radius : NO_SPHERE, warps);
    float const wider = WIDER * widest + BESIDE + FAR * sqrtf(dot(centre, centre));
    return {centre.x, centre.y, centre.z, widest < 0 ? NO_SPHERE : wider};
}

// Marks the block as visible if some view may see one of its Gaussians. All threads of a block call it.
template <bool SWEEPS>
__device__ void mark_block(BlockScene const& in, int64_t first, uint8_t* visible) {
    __shared__ ViewRow<float> row;
    int64_t const i = first + threadIdx.x, block = first / BLOCK_GAUSSIANS;
    bool const moves = smaller(first + THREADS, in.n) > in.still;  // the times of the views place those that move
    bool const there = !moves && i < in.n;
    Extent const g = there ? extent_of(in, i) : Extent{};
    bool some = moves;
    for (int64_t v = 0; !some && v < in.views; ++v) {
        copy_numbers(row, in.view[v].row);
        __syncthreads();
        some = __syncthreads_or(sees<SWEEPS>(row, in.view[v], g));
    }
    float4 const sphere = some ? float4{0, 0, 0, NO_SPHERE} : sphere_of(g, there);
    if (threadIdx.x == 0) visible[block] = some, spheres_of(in)[block] = sphere;
}

// SWEEPS: some view may be a lidar's.
template <bool SWEEPS>
__global__ void __launch_bounds__(THREADS)
    mark_visible_blocks_kernel(BlockScene in, VisibleBlocks blocks, uint8_t* visible) {
    wait_then_launch_dependents();
    for_visible_blocks(blocks, in.n, [&](int64_t first) { mark_block<SWEEPS>(in, first, visible); });
}

bool has_sweeps(BlockScene const& in) {
    for (int64_t v = 0; v < in.views; ++v)
        if (in.view[v].occupied) return true;
    return false;
}

constexpr int LIST_THREADS = 1024, FLAGS = FLAG_VECTOR;  // that a thread reads at once

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

// Lists the visible ones of n blocks, ascending; with `spheres` they lose theirs.
__global__ void __launch_bounds__(LIST_THREADS)
    list_visible_blocks_kernel(uint8_t const* visible, int64_t n, int* listed, float4* spheres) {
    wait_then_launch_dependents();
    __shared__ uint64_t warps[LIST_THREADS / 32];
    int count = 0;
    for (int64_t begin = 0; begin < n; begin += FLAGS * LIST_THREADS) {
        int64_t const first = begin + FLAGS * int64_t(threadIdx.x);
        unsigned bits = flags_from(visible, first, n);
        Sums const sums = sums_before(uint64_t(__popc(bits)), warps);
        for (int* to = listed + 1 + count + sums.before; bits; bits &= bits - 1) {
            int const block = int(first) + __ffs(int(bits)) - 1;
            *to++ = block;
            if (spheres) spheres[block].w = NO_SPHERE;
        }
        count += int(sums.all);
        __syncthreads();
    }
    if (threadIdx.x == 0) listed[0] = count;
}

template <bool SWEEPS>
void mark_blocks(BlockScene const& in, uint8_t* visible, Queue const& queue) {
    int64_t const n = blocks_of_store(in.n);
    auto* const read = queue.memory.array<int>(1 + n);  // blocks for the second kernel
    VisibleBlocks const blocks = {read};
    launch_pdl(test_spheres_kernel<SWEEPS>, blocks_for(n), THREADS, queue, in, visible);
    list_visible_blocks(visible, n, read, nullptr, queue);
    launch_pdl(mark_visible_blocks_kernel<SWEEPS>, blocks_for(blocks, in.n), THREADS, queue, in, blocks, visible);
}

}  // namespace

void mark_visible_blocks(BlockScene const& in, uint8_t* visible, Queue const& queue) {
    if (!in.n) return;
    has_sweeps(in) ? mark_blocks<true>(in, visible, queue) : mark_blocks<false>(in, visible, queue);
}

void list_visible_blocks(uint8_t const* visible, int64_t n, int* listed, float* spheres, Queue const& queue) {
    launch_pdl(list_visible_blocks_kernel, 1, LIST_THREADS, queue, visible, n, listed,
               reinterpret_cast<float4*>(spheres));
}

}  // namespace nurec::cuda
