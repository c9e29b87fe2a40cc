// SPDX-License-Identifier: Apache-2.0
// The candidates of one view, from the results that its projection keeps for each Gaussian: the outline in an image
// (../../project/visibility.cuh), or the candidates of a sweep's. ../views/many_views.cu does the same for a launch of
// several views, which has no memory for that and makes it again for visible Gaussians. ../../README.md says why there
// are two.
#include "../../common/gaussians.cuh"
#include "../../common/visible.cuh"
#include "bounds.cuh"
#include "image_rows.cuh"

namespace nurec::cuda {
namespace {

// ---- a lidar

constexpr int GAUSSIANS_PER_THREAD = 4;  // Gaussians of a thread: their counts are read together

__global__ void number_candidates_kernel(BinParams p, BinWork work) {
    wait_then_launch_dependents();
    int64_t const tile = fetch_tile(work.next), first = first_of_thread<GAUSSIANS_PER_THREAD>(tile),
                  end = end_of_visible(p);
    int64_t index[GAUSSIANS_PER_THREAD];
    int n[GAUSSIANS_PER_THREAD];
#pragma unroll
    for (int k = 0; k < GAUSSIANS_PER_THREAD; ++k) index[k] = first + 32 * k < end ? p.index[first + 32 * k] : -1;
#pragma unroll
    for (int k = 0; k < GAUSSIANS_PER_THREAD; ++k) n[k] = index[k] < 0 ? 0 : p.counts[index[k]];
    number(work, p.v, tile, n);
}

// ---- an image

__device__ Outline<float> outline_at(BinParams const& p, int64_t i) {
    return reinterpret_cast<Outline<float> const*>(p.shapes)[p.index[i]];
}

__device__ void find_candidates(BinParams const& p, BinWork const& work, int64_t end, int64_t tile) {
    int64_t const i = THREADS * tile + threadIdx.x;
    Candidates c = i < end ? image_candidates(p.warp_tiles, p.bounds[p.index[i]]) : empty_candidates();
    if (rows_of(c))
        work.rows[i] =
            p.exact ? rows_within(p.warp_tiles, c, outline_at(p, i), *p.view, work.near, uint32_t(i)) : boxed(c);
    number<1>(work, end, tile, {super_tile_rows_of(c)});
    if (i == end) work.begins[p.v] = work.begins[end];
}

// Blocks take tiles until all visible Gaussians are done: of all Gaussians these may be few.
__global__ void __launch_bounds__(THREADS, 6) find_image_candidates_kernel(BinParams p, BinWork work) {
    wait_then_launch_dependents();
    int64_t const end = end_of_visible(p), tiles = end / THREADS + 1;
#pragma unroll 1
    for (int64_t tile = fetch_tile(work.next); tile < tiles; tile = fetch_tile(work.next))
        find_candidates(p, work, end, tile);
}

__global__ void find_near_plane_spans_kernel(BinParams p, BinWork work) {
    wait_then_launch_dependents();
    __shared__ View<double> view;
    copy_view(view, *p.view);
    __syncthreads();
    for (int n = int(blockIdx.x); n < *work.near.counts; n += int(gridDim.x)) {
        uint32_t const i = work.near.which[n];
        ImageRows const rows = work.rows[i];
        InView const g = in_view(p.g, p.index[i], p.g.opacities[p.index[i]]);
        for (int k = int(threadIdx.x); k < rows.rows; k += THREADS)
            work.near.spans[rows.spans + k] = near_span(p.warp_tiles, view, g, rows, k);
    }
}

void number_sweep_candidates(BinParams const& p, BinWork const& work, Queue const& queue) {
    launch_pdl(number_candidates_kernel, blocks_for((p.v + GAUSSIANS_PER_THREAD) / GAUSSIANS_PER_THREAD), THREADS,
               queue, p, work);
    bound_warp_tiles(p, work, queue);
}

void number_image_candidates(BinParams const& p, BinWork const& work, Queue const& queue) {
    auto const blocks = unsigned(smaller<int64_t>(blocks_for(p.v + 1), BLOCKS_PER_MULTIPROCESSOR * multiprocessors()));
    launch_pdl(find_image_candidates_kernel, blocks, THREADS, queue, p, work);
    if (p.exact) launch_pdl(find_near_plane_spans_kernel, unsigned(2 * multiprocessors()), THREADS, queue, p, work);
}

}  // namespace

void number_candidates(BinParams const& p, BinWork const& work, Queue const& queue) {
    p.warp_tiles.is_camera ? number_image_candidates(p, work, queue) : number_sweep_candidates(p, work, queue);
}

}  // namespace nurec::cuda
