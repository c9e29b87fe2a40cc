// SPDX-License-Identifier: Apache-2.0
#include "../common/cells.cuh"
#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../common/sort.h"
#include "params.h"

namespace nurec::cuda {
namespace {

__global__ void mark_cells(Cells cells, int* cell, int* there) {
    int64_t const r = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (r >= cells.n_rays) return;
    cell[r] = cell_of(cells, cells.directions + 3 * r);
    there[cell[r]] = 1;
}

// One block a band: prefix sums over three turns of the columns.
__global__ void sum_columns(Cells cells, int const* there, int* table) {
    __shared__ int total;
    int64_t const band = blockIdx.x, width = 3 * cells.columns + 1;
    int* row = table + (band + 1) * width;
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

__global__ void sum_bands(Cells cells, int* table) {
    int64_t const width = 3 * cells.columns + 1, c = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (c >= width) return;
    table[c] = 0;
    for (int64_t band = 1; band <= cells.bands; ++band) table[band * width + c] += table[(band - 1) * width + c];
}

// Whether a sphere about a point, seen from the sensor, touches a cell that holds a ray.
__device__ bool near_rays(Cells const& cells, int const* table, Vec3<float> p, float radius) {
    Place<float> const at = spherical(p);
    float const angle = asinf(fminf(1.2f * radius / fmaxf(at.depth, 1e-6f), 1.f));
    float around = 1.2f * angle / fmaxf(cosf(fabsf(at.v) + angle), 1e-6f);  // beyond a pole, all around
    around = angle > 1 ? float(PI) : fminf(around, float(PI));
    int64_t const n = cells.columns, width = 3 * n + 1;
    // within the table also where a mean is NaN
    int64_t const first = min(max(column_of(cells, at.u - around) + n - 1, int64_t(0)), 3 * n);
    int64_t const last = min(max(column_of(cells, at.u + around) + n + 2, int64_t(0)), 3 * n);
    int64_t const low = band_of(cells, at.v - 1.2f * angle), high = band_of(cells, at.v + 1.2f * angle) + 1;
    return table[high * width + last] - table[low * width + last] - table[high * width + first] +
               table[low * width + first] >
           0;
}

__device__ uint32_t sortable(float a) {
    uint32_t const bits = __float_as_uint(a + 0.f);  // -0 and 0 alike
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// CAMERA: the sensor; a kernel of its own, for a camera's needs fewer registers.
template <bool CAMERA>
__device__ bool may_see(ProjectParams const& p, View<float> const& view, int const* occupied, Vec3<float> mean,
                        Vec3<float> s, Vec3<float> v, float reach) {
    Vec3<float> const local = view.motion.at(mean, {0, 0, 0}, 0.5f);
    float radius = reach * fmaxf(s.x, fmaxf(s.y, s.z)) + 0.5f * view.motion.seconds * sqrtf(dot(v, v));
    radius += 0.5f * (view.travel + view.turning * sqrtf(dot(local, local)));
    return CAMERA ? in_cone(view.camera, local, radius) : near_rays(p.cells, occupied, local, radius);
}

// Left alone, the compiler takes 113 on sm_89, and 79 or less on sm_100 and later, where a lower limit costs nothing.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int LIDAR_REGISTERS = 80;
#else
constexpr int LIDAR_REGISTERS = 104;
#endif

// occupied: [bands + 1, 3 columns + 1] summed-area table of cells that hold rays, of a lidar.
template <bool CAMERA>
__global__ void __maxnreg__(CAMERA ? 56 : LIDAR_REGISTERS)
    project_kernel(ProjectParams p, int const* occupied, Looked out) {
    __shared__ View<float> view;  // in registers its numbers would take the place of others
    copy_numbers(view, p.view);
    __syncthreads();
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.g.n) return;
    Vec3<float> const mean = mean_of(p.g, i), s = load3(p.g.scales, i), v = velocity_of(p.g, i);
    float const reach = reach_of(p.g.opacities[i]);
    bool const seen = reach > 0 && may_see<CAMERA>(p, view, occupied, mean, s, v, reach);
    out.visible[i] = seen;
    if (!seen) return;
    Quat<float> const q = quat_of(p.g, i);
    out.bounds[i] = CAMERA ? camera_bounds(view.camera, view.motion, mean, q, s, v, reach)
                           : lidar_bounds(view.lidar, view.motion, mean, q, s, v, reach);
    out.keys[i] = sortable(CAMERA ? dot(mean, view.forward) : sqrtf(dot(mean, mean)));
}

__global__ void gather_keys(int64_t n, uint32_t const* chosen, uint32_t const* all, uint32_t* keys) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) keys[i] = all[chosen[i]];
}

__global__ void keys_of_all(int64_t n, Looked looked, uint32_t* keys, uint32_t* index) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) keys[i] = looked.visible[i] ? looked.keys[i] : ~0u, index[i] = uint32_t(i);
}

__global__ void gather_bounds(Looked looked, Sorted out, uint32_t const* index) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= out.v) return;
    bool const hidden = !out.chosen && !looked.visible[index[i]];
    Bounds<float> const b = hidden ? Bounds<float>{NOWHERE, NOWHERE, -NOWHERE, -NOWHERE} : looked.bounds[index[i]];
    out.index[i] = index[i];
    out.low[2 * i] = b.low_u, out.low[2 * i + 1] = b.low_v;
    out.high[2 * i] = b.high_u, out.high[2 * i + 1] = b.high_v;
}

int const* count_occupied(Cells const& cells, Queue const& queue) {
    auto* const cell = queue.memory.array<int>(cells.n_rays);
    auto* const there = zeros<int>(cells.bands * cells.columns, queue);
    auto* const table = queue.memory.array<int>((cells.bands + 1) * (3 * cells.columns + 1));
    if (cells.n_rays) mark_cells<<<blocks_for(cells.n_rays), THREADS, 0, queue.stream>>>(cells, cell, there);
    sum_columns<<<unsigned(cells.bands), THREADS, 0, queue.stream>>>(cells, there, table);
    sum_bands<<<blocks_for(3 * cells.columns + 1), THREADS, 0, queue.stream>>>(cells, table);
    return table;
}

}  // namespace

Looked look(ProjectParams const& p, Queue const& queue) {
    int64_t const n = p.g.n;
    Looked const out = {queue.memory.array<uint8_t>(n), queue.memory.array<uint32_t>(n),
                        queue.memory.array<Bounds<float>>(n)};
    int const* const occupied = p.is_camera ? nullptr : count_occupied(p.cells, queue);
    if (n && p.is_camera) project_kernel<true><<<blocks_for(n), THREADS, 0, queue.stream>>>(p, occupied, out);
    if (n && !p.is_camera) project_kernel<false><<<blocks_for(n), THREADS, 0, queue.stream>>>(p, occupied, out);
    return out;
}

uint32_t* select_visible(ProjectParams const& p, Looked const& looked, int64_t* count, Queue const& queue) {
    auto* const chosen = queue.memory.array<uint32_t>(p.g.n);
    select_flagged(looked.visible, p.g.n, chosen, count, queue);
    return chosen;
}

// Radix sort is stable, and the index ascends.
void sort_by_depth(Looked const& looked, Sorted const& out, Queue const& queue) {
    int64_t const v = out.v;
    if (!v) return;
    auto const array = [&] { return queue.memory.array<uint32_t>(v); };
    uint32_t *keys = array(), *sorted_keys = array(), *sorted = array(), *all = out.chosen ? nullptr : array();
    if (all)
        keys_of_all<<<blocks_for(v), THREADS, 0, queue.stream>>>(v, looked, keys, all);
    else
        gather_keys<<<blocks_for(v), THREADS, 0, queue.stream>>>(v, out.chosen, looked.keys, keys);
    sort_pairs({v, keys, all ? all : out.chosen, sorted_keys, sorted}, 32, queue);
    gather_bounds<<<blocks_for(v), THREADS, 0, queue.stream>>>(looked, out, sorted);
}

}  // namespace nurec::cuda
