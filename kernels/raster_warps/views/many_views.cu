// SPDX-License-Identifier: Apache-2.0
// The candidates of several views, and the rows that rays read. Sorts the visible instances by depth, finds their
// candidates, and packs the rows. Instances that no view sees take no memory, and of those that no warp tile is near,
// only the bounds are read. ../bin/one_view.cu does the same for a view alone.
#include "../bin/bounds.cuh"
#include "../bin/image_rows.cuh"
#include "../../common/launch.cuh"
#include "../../common/sort.h"
#include "../../math/sh.cuh"
#include "../../math/view_direction.cuh"
#include "../../project/gaussian_row.cuh"
#include "views.cuh"

namespace nurec::cuda {
namespace {

__global__ void gather_depth_keys_kernel(Visibility visibility, VisibleList visible_list, uint32_t* keys) {
    wait_then_launch_dependents();
    int64_t const r = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (r < visible_list.most && r < *visible_list.count) keys[r] = visibility.keys[visible_list.chosen[r]];
}

// Returns the candidates of a lidar's view, in the bands of this view.
__device__ Candidates bands_from(Views const& p, WarpTiles b, Bounds<float> const& bounds, int64_t view) {
    b.cells.bands = p.rays.sweeps.cells.bands;
    int const first = int(view) * int(b.cells.bands);
    b.heights += 2 * first;
    Candidates c = sweep_candidates(b, bounds);
    c.row0 += first, c.row1 += first;
    return c;
}

// Returns the colour, with S coefficients. nurec_lite/splat/render.py is the specification.
template <int S>
__device__ Vec3<float> colour_of(ViewedScene const& scene, int64_t view, int64_t i, Vec3<float> mean) {
    int64_t const still = scene.g.n_still, moving = scene.g.n - still;
    Vec3<float> const d = i < still ? view_direction(mean)
                                    : local_view_direction(load_quat(scene.frames, moving * view + i - still), mean);
    float sh[3 * S];
#pragma unroll
    for (int c = 0; c < 3 * S; ++c) sh[c] = scene.sh.at(i, c);
    return sh_colour<S>(sh, d);
}

// S is 0 for a lidar.
template <int S>
constexpr int features_for = S == 0 ? 2 : 3;

template <bool MOVING, int S>
__device__ GaussianRow<MOVING, features_for<S>> row_from(ViewedScene const& scene, int64_t view, int64_t i,
                                                         Gaussians const& g, Frame<float> const& frame, float opacity) {
    Frame<float> const seen = frame_on<MOVING>(&scene.rows[view].path, frame);
    if constexpr (S == 0) {
        return make_gaussian_row<MOVING>(seen, opacity, {scene.lidar[2 * i], scene.lidar[2 * i + 1]});
    } else {
        Vec3<float> const colour = colour_of<S>(scene, view, i, mean_of(g, i));
        return make_gaussian_row<MOVING>(seen, opacity, {colour.x, colour.y, colour.z});
    }
}

struct PackedRows {
    uint32_t const* numbers;  // [most] nearest first
    BinWork work;
    float* rows;
};

// Gaussian i as a view sees it.
struct Instance {
    int64_t view, i;
};

__device__ Instance instance_of(Views const& p, uint32_t number) {
    int64_t const n = p.scene.g.n, view = number / n;
    return {view, number - n * view};
}

// Finds the rows that an instance may hit, and shrinks its candidates if its outline is lower than its bounds.
__device__ ImageRows outlined_rows(Views const& p, Instance const& at, WarpTiles const& warp_tiles, Candidates& c,
                                   NearPlaneCases const& near, uint32_t which) {
    auto const [view, i] = at;
    View<float> const& seen = p.scene.rows[view].view;
    Outline<float> const o = outline_of(seen, in_view(seen_from(p.scene, view), i, opacity_of(p.scene, view, i)));
    return rows_within(warp_tiles, c, o, seen, near, which);
}

// Finds the rows of an image that an instance may hit. Returns the number of rows of super-tiles. LENSES: some view has
// a lens; a Gaussian then has bounds but no outline.
template <bool LENSES>
__device__ int rows_seen(Views const& p, Visibility const& visibility, VisibleList const& visible_list,
                         WarpTiles const& warp_tiles, PackedRows const& out, int64_t r) {
    if (r >= visible_list.most || r >= *visible_list.count) return 0;
    Bounds<float> const bounds = visibility.bounds[out.numbers[r]];
    Candidates c = image_candidates(warp_tiles, bounds);
    if (!rows_of(c)) return 0;
    Instance const at = instance_of(p, out.numbers[r]);
    ImageRows rows = LENSES && p.scene.rows[at.view].lens.exists()
                         ? boxed(c)
                         : outlined_rows(p, at, warp_tiles, c, out.work.near, uint32_t(r));
    rows.super_tiles = int(at.view) * warp_tiles.super_tiles_of_image();
    if (rows_of(c)) out.work.rows[r] = rows;
    return super_tile_rows_of(c);
}

__global__ void find_view_candidates_kernel(Views p, Visibility visibility, VisibleList visible_list,
                                            WarpTiles warp_tiles, PackedRows out) {
    wait_then_launch_dependents();
    int64_t const tile = fetch_tile(out.work.next), r = THREADS * tile + threadIdx.x;
    number<1>(out.work, visible_list.most, tile, {rows_seen<false>(p, visibility, visible_list, warp_tiles, out, r)});
}

__global__ void find_view_candidates_through_lenses_kernel(Views p, Visibility visibility, VisibleList visible_list,
                                                           WarpTiles warp_tiles, PackedRows out) {
    wait_then_launch_dependents();
    int64_t const tile = fetch_tile(out.work.next), r = THREADS * tile + threadIdx.x;
    number<1>(out.work, visible_list.most, tile, {rows_seen<true>(p, visibility, visible_list, warp_tiles, out, r)});
}

__global__ void find_view_near_plane_spans_kernel(Views p, WarpTiles warp_tiles, PackedRows out) {
    wait_then_launch_dependents();
    __shared__ View<double> view;
    NearPlaneCases const& near = out.work.near;
    for (int n = int(blockIdx.x); n < *near.counts; n += int(gridDim.x)) {
        uint32_t const r = near.which[n];
        auto const [v, i] = instance_of(p, out.numbers[r]);
        __syncthreads();
        copy_view(view, p.scene.rows[v].view);
        __syncthreads();
        ImageRows const rows = out.work.rows[r];
        InView const g = in_view(seen_from(p.scene, v), i, opacity_of(p.scene, v, i));
        for (int k = int(threadIdx.x); k < rows.rows; k += THREADS)
            near.spans[rows.spans + k] = near_span(warp_tiles, view, g, rows, k);
    }
}

// The number of a lidar's warp tiles that it may hit; writes them to `r`.
__device__ int count_tiles_near(Views const& p, Visibility const& visibility, VisibleList const& visible_list,
                                WarpTiles const& warp_tiles, PackedRows const& out, int64_t r) {
    bool const there = r < visible_list.most && r < *visible_list.count;
    int64_t const number = there ? out.numbers[r] : 0;
    Candidates c =
        there ? bands_from(p, warp_tiles, visibility.bounds[number], number / p.scene.g.n) : empty_candidates();
    int const n = count_candidates(warp_tiles, c);
    if (n) out.work.candidates[r] = c;
    return n;
}

// Returns the number of candidates. Those of an image are numbered already; those of a lidar are numbered here.
template <int S>
__device__ int64_t candidates_of(Views const& p, Visibility const& visibility, VisibleList const& visible_list,
                                 WarpTiles const& warp_tiles, PackedRows const& out, int64_t tile, int64_t r) {
    if (S) return r < visible_list.most ? out.work.begins[r + 1] - out.work.begins[r] : 0;
    int const n = count_tiles_near(p, visibility, visible_list, warp_tiles, out, r);
    number<1>(out.work, visible_list.most, tile, {n});
    return n;
}

template <bool MOVING, int S>
__global__ void __launch_bounds__(THREADS, 4)
    pack_view_rows_kernel(Views p, Visibility visibility, VisibleList visible_list, WarpTiles warp_tiles,
                          PackedRows out) {
    wait_then_launch_dependents();
    int64_t const tile = S ? blockIdx.x : fetch_tile(out.work.next), r = THREADS * tile + threadIdx.x;
    if (candidates_of<S>(p, visibility, visible_list, warp_tiles, out, tile, r) == 0) return;
    auto const [view, i] = instance_of(p, out.numbers[r]);
    Gaussians const g = seen_from(p.scene, view);
    Frame<float> const frame = frame_of(g, i);
    float const opacity = opacity_of(p.scene, view, i);
    using Row = GaussianRow<MOVING, features_for<S>>;
    reinterpret_cast<Row*>(out.rows)[r] = row_from<MOVING, S>(p.scene, view, i, g, frame, opacity);
}

using Prepare = void (*)(Views, Visibility, VisibleList, WarpTiles, PackedRows);

template <bool MOVING>
Prepare prepare_image(int64_t s) {
    return s == 1   ? pack_view_rows_kernel<MOVING, 1>
           : s == 4 ? pack_view_rows_kernel<MOVING, 4>
           : s == 9 ? pack_view_rows_kernel<MOVING, 9>
                    : pack_view_rows_kernel<MOVING, 16>;
}

Prepare prepare_for(Views const& p) {
    if (!p.rays.is_camera) return pack_view_rows_kernel<true, 0>;
    return p.rays.moving ? prepare_image<true>(p.scene.coefficients) : prepare_image<false>(p.scene.coefficients);
}

// Sorts the instances by depth. Radix sort is stable and instances ascend, so equal depths keep their order.
void sort_by_depth(Visibility const& visibility, VisibleList const& visible_list, uint32_t* sorted,
                   Queue const& queue) {
    if (!visible_list.most) return;
    auto* const keys = queue.memory.array<uint32_t>(visible_list.most);
    launch_pdl(gather_depth_keys_kernel, blocks_for(visible_list.most), THREADS, queue, visibility, visible_list, keys);
    sort_pairs({visible_list.most, keys, visible_list.chosen, nullptr, sorted, visible_list.count}, visibility.bits,
               queue);
}

void find_rows(Views const& p, Visibility const& visibility, VisibleList const& visible_list,
               WarpTiles const& warp_tiles, PackedRows const& out, Queue const& queue) {
    auto const find = p.rays.lenses ? find_view_candidates_through_lenses_kernel : find_view_candidates_kernel;
    launch_pdl(find, blocks_for(visible_list.most + 1), THREADS, queue, p, visibility, visible_list, warp_tiles, out);
    launch_pdl(find_view_near_plane_spans_kernel, unsigned(2 * multiprocessors()), THREADS, queue, p, warp_tiles, out);
}

}  // namespace

void pack_view_rows(Views const& p, Visibility const& visibility, VisibleList const& visible_list,
                    BinParams const& warp_tiles, BinWork const& work, uint32_t* numbers, float* rows,
                    Queue const& queue) {
    sort_by_depth(visibility, visible_list, numbers, queue);
    PackedRows const out = {numbers, work, rows};
    auto const blocks = blocks_for(visible_list.most + 1);
    if (p.rays.is_camera)
        find_rows(p, visibility, visible_list, warp_tiles.warp_tiles, out, queue);
    else
        bound_warp_tiles(warp_tiles, work, queue);
    Prepare const kernel = prepare_for(p);
    launch_pdl(kernel, blocks, THREADS, queue, p, visibility, visible_list, warp_tiles.warp_tiles, out);
}

}  // namespace nurec::cuda
