// SPDX-License-Identifier: Apache-2.0
#include "../common/launch.cuh"
#include "../common/sort.h"
#include "../common/visible.cuh"
#include "visibility.cuh"

namespace nurec::cuda {
namespace {

__global__ void mark_occupied_cells_kernel(Sweeps sweeps, int* there) {
    wait_then_launch_dependents();
    int64_t const r = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    Cells const& cells = sweeps.cells;
    if (r >= cells.n_rays) return;
    int64_t const sweep = sweep_of(sweeps, r);
    there[sweep * cells.bands * cells.columns + cell_of(cells, cells.directions + 3 * r)] = 1;
}

// One block a band of a sweep: prefix sums over three turns of the columns.
__global__ void sum_cell_columns_kernel(Cells cells, int const* there, int* table) {
    wait_then_launch_dependents();
    __shared__ int total;
    int64_t const band = blockIdx.x, width = 3 * cells.columns + 1;
    int* row = table + (band + band / cells.bands + 1) * width;  // above each sweep's is a row of zeros
    if (threadIdx.x == 0) total = 0, row[0] = 0;
    for (int64_t start = 0; start < 3 * cells.columns; start += blockDim.x) {
        __syncthreads();
        int64_t const c = start + threadIdx.x;
        int const mine = c < 3 * cells.columns ? there[band * cells.columns + c % cells.columns] : 0;
        int sum = mine;  // of the warp
        for (int step = 1; step < 32; step *= 2) {
            int const other = __shfl_up_sync(~0u, sum, step);
            if (int(threadIdx.x & 31) >= step) sum += other;
        }
        __shared__ int warps[32];
        if ((threadIdx.x & 31) == 31) warps[threadIdx.x >> 5] = sum;
        __syncthreads();
        int before = total;
        for (int w = 0; w < int(threadIdx.x >> 5); ++w) before += warps[w];
        if (c < 3 * cells.columns) row[c + 1] = before + sum;
        __syncthreads();
        if (threadIdx.x == blockDim.x - 1) total = before + sum;
    }
}

constexpr int BANDS_AT_ONCE = 8;  // bands that a thread reads before it writes

__global__ void sum_cell_bands_kernel(Sweeps sweeps, int* table) {
    wait_then_launch_dependents();
    Cells const& cells = sweeps.cells;
    int64_t const width = 3 * cells.columns + 1, i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= sweeps.n * width) return;
    int64_t const c = i % width;
    table += i / width * (cells.bands + 1) * width;
    int sum = table[c] = 0;
    for (int64_t band = 1; band <= cells.bands; band += BANDS_AT_ONCE) {
        int mine[BANDS_AT_ONCE];
#pragma unroll
        for (int k = 0; k < BANDS_AT_ONCE; ++k) mine[k] = band + k <= cells.bands ? table[(band + k) * width + c] : 0;
#pragma unroll
        for (int k = 0; k < BANDS_AT_ONCE; ++k)
            if (band + k <= cells.bands) table[(band + k) * width + c] = sum += mine[k];
    }
}

// By LISTS, without and with short keys; with 64 it spills one or two where it has more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 890
constexpr int LIDAR_REGISTERS[][2] = {{72, 72}, {72, 72}};
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
constexpr int LIDAR_REGISTERS[][2] = {{64, 64}, {72, 64}};
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 1000
constexpr int LIDAR_REGISTERS[][2] = {{72, 72}, {64, 80}};
#else
constexpr int LIDAR_REGISTERS[][2] = {{64, 64}, {64, 64}};
#endif

// occupied: [bands + 1, 3 columns + 1] summed-area table of cells that hold rays, of a lidar.
template <bool CAMERA, bool SHORT, bool LISTS>
__global__ void __maxnreg__(CAMERA ? 56 : LIDAR_REGISTERS[LISTS][SHORT])
    project_gaussians_kernel(ProjectParams p, int const* occupied, Visibility out) {
    wait_then_launch_dependents();
    __shared__ View<float> view;  // in registers its numbers would take the place of others
    copy_numbers(view, p.view);
    __syncthreads();
    auto const opacity = [&](int64_t i) { return p.g.opacities[i]; };
    for_visible_blocks(p.blocks, p.g.n, [&](int64_t first) {
        find_visible_in_block<CAMERA, SHORT, LISTS>(p, view, occupied, first, opacity, out, 0);
    });
}

using Project = void (*)(ProjectParams, int const*, Visibility);

template <bool LISTS>
Project kernel_for(bool is_camera, int bits) {
    if (bits < DEPTH_BITS)
        return is_camera ? project_gaussians_kernel<true, true, LISTS> : project_gaussians_kernel<false, true, LISTS>;
    return is_camera ? project_gaussians_kernel<true, false, LISTS> : project_gaussians_kernel<false, false, LISTS>;
}

__global__ void gather_bounds_kernel(Visibility visibility, uint32_t const* numbers, int64_t const* count, Sorted out) {
    wait_then_launch_dependents();
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= out.v) return;
    bool const there = i < *count;
    int64_t const k = there ? numbers[i] : 0;
    Bounds<float> const b = there ? visibility.bounds[k] : Bounds<float>{NOWHERE, NOWHERE, -NOWHERE, -NOWHERE};
    out.index[i] = k;
    out.low[2 * i] = b.low_u, out.low[2 * i + 1] = b.low_v;
    out.high[2 * i] = b.high_u, out.high[2 * i + 1] = b.high_v;
}

}  // namespace

void count_occupied(Sweeps const& sweeps, int* table, Queue const& queue) {
    Cells const& cells = sweeps.cells;
    int64_t const width = 3 * cells.columns + 1;
    auto* const there = zeros<int>(sweeps.bands() * cells.columns, queue);
    if (cells.n_rays) launch_pdl(mark_occupied_cells_kernel, blocks_for(cells.n_rays), THREADS, queue, sweeps, there);
    launch_pdl(sum_cell_columns_kernel, unsigned(sweeps.bands()), THREADS, queue, cells, there, table);
    launch_pdl(sum_cell_bands_kernel, blocks_for(sweeps.n * width), THREADS, queue, sweeps, table);
}

int const* count_occupied(Sweeps const& sweeps, Queue const& queue) {
    Cells const& cells = sweeps.cells;
    auto* const table = queue.memory.array<int>(sweeps.n * (cells.bands + 1) * (3 * cells.columns + 1));
    count_occupied(sweeps, table, queue);
    return table;
}

void look(ProjectParams const& p, int const* occupied, Visibility const& out, Queue const& queue) {
    int64_t const n = p.g.n;
    if (p.lens) return look_through_lens(p, out, queue);
    Project const kernel = (p.is_camera ? out.shapes != nullptr : out.candidates != nullptr)
                               ? kernel_for<true>(p.is_camera, out.bits)
                               : kernel_for<false>(p.is_camera, out.bits);
    if (n) launch_pdl(kernel, blocks_for(p.blocks, n), THREADS, queue, p, occupied, out);
}

// Radix sort is stable, and the numbers ascend.
uint32_t* sort_by_depth(ProjectParams const& p, Visibility const& visibility, int64_t* count, int64_t* index,
                        Queue const& queue) {
    auto* const sorted = index ? nullptr : queue.memory.array<uint32_t>(p.g.n);
    Pairs pairs = {p.g.n, visibility.keys, nullptr, nullptr, sorted, nullptr, count, index};
    pairs.blocks = p.blocks;
    sort_pairs(pairs, visibility.bits, queue);
    return sorted;
}

void gather_bounds(Visibility const& visibility, uint32_t const* numbers, int64_t const* count, Sorted const& out,
                   Queue const& queue) {
    if (out.v) launch_pdl(gather_bounds_kernel, blocks_for(out.v), THREADS, queue, visibility, numbers, count, out);
}

}  // namespace nurec::cuda
