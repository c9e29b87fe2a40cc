// SPDX-License-Identifier: Apache-2.0
// What is seen, nearest first, as bundles and rays read it. Gaussians that no view sees take no room, and of those that
// no bundle is near to nothing but their bounds is read.
#include "../bundle/bounds.cuh"
#include "../bundle/image_rows.cuh"
#include "../common/launch.cuh"
#include "../common/sort.h"
#include "../math/sh.cuh"
#include "../math/view_direction.cuh"
#include "../render_parts/part_rows.cuh"
#include "views.cuh"

namespace nurec::cuda {
namespace {

__global__ void gather_depth_keys_kernel(Looked looked, Looks looks, uint32_t* keys) {
    wait_then_launch_dependents();
    int64_t const r = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (r < looks.most && r < *looks.count) keys[r] = looked.keys[looks.chosen[r]];
}

// In bands of the view's own.
__device__ Candidates bands_from(Views const& p, Bundles b, Bounds<float> const& bounds, int64_t view) {
    b.cells.bands = p.rays.sweeps.cells.bands;
    int const first = int(view) * int(b.cells.bands);
    b.heights += 2 * first;
    Candidates c = on_sphere(b, bounds);
    c.row0 += first, c.row1 += first;
    return c;
}

// S: coefficients of the harmonics. As nurec_lite/splat/render.py has it.
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

// S: 0 of a lidar.
template <int S>
constexpr int features_for = S == 0 ? 2 : 3;

template <bool MOVING, int S>
__device__ PartRow<MOVING, features_for<S>> row_from(ViewedScene const& scene, int64_t view, int64_t i,
                                                     Gaussians const& g, Frame<float> const& frame, float opacity) {
    Frame<float> const seen = frame_on<MOVING>(&scene.rows[view].path, frame);
    if constexpr (S == 0) {
        return part_row<MOVING>(seen, opacity, {scene.lidar[2 * i], scene.lidar[2 * i + 1]});
    } else {
        Vec3<float> const colour = colour_of<S>(scene, view, i, mean_of(g, i));
        return part_row<MOVING>(seen, opacity, {colour.x, colour.y, colour.z});
    }
}

struct Prepared {
    uint32_t const* numbers;  // [most] nearest first
    BundleWork work;
    float* rows;
};

// A look: Gaussian i of a view.
struct Look {
    int64_t view, i;
};

__device__ Look look_of(Views const& p, uint32_t number) {
    int64_t const n = p.scene.g.n, view = number / n;
    return {view, number - n * view};
}

// Rows of an image that a look may meet; returns how many rows of clusters they are.
__device__ int rows_seen(Views const& p, Looked const& looked, Looks const& looks, Bundles const& bundles,
                         Prepared const& out, int64_t r) {
    if (r >= looks.most || r >= *looks.count) return 0;
    Bounds<float> const bounds = looked.bounds[out.numbers[r]];
    Candidates c = in_image(bundles, bounds);
    if (!rows_of(c)) return 0;
    auto const [view, i] = look_of(p, out.numbers[r]);
    View<float> const& seen = p.scene.rows[view].view;
    Outline<float> const o = outline_of(seen, in_view(seen_from(p.scene, view), i, opacity_of(p.scene, view, i)));
    ImageRows rows = rows_within(bundles, c, o, seen, out.work.near, uint32_t(r));
    rows.clusters = int(view) * bundles.clusters_of_image();
    if (rows_of(c)) out.work.rows[r] = rows;
    return cluster_rows_of(c);
}

__global__ void find_view_candidates_kernel(Views p, Looked looked, Looks looks, Bundles bundles, Prepared out) {
    wait_then_launch_dependents();
    int64_t const tile = fetch_tile(out.work.next), r = THREADS * tile + threadIdx.x;
    number<1>(out.work, looks.most, tile, {rows_seen(p, looked, looks, bundles, out, r)});
}

__global__ void find_view_near_plane_spans_kernel(Views p, Bundles bundles, Prepared out) {
    wait_then_launch_dependents();
    __shared__ View<double> view;
    Near const& near = out.work.near;
    for (int n = int(blockIdx.x); n < *near.counts; n += int(gridDim.x)) {
        uint32_t const r = near.which[n];
        auto const [v, i] = look_of(p, out.numbers[r]);
        __syncthreads();
        copy_view(view, p.scene.rows[v].view);
        __syncthreads();
        ImageRows const rows = out.work.rows[r];
        InView const g = in_view(seen_from(p.scene, v), i, opacity_of(p.scene, v, i));
        for (int k = int(threadIdx.x); k < rows.rows; k += THREADS)
            near.spans[rows.spans + k] = near_span(bundles, view, g, rows, k);
    }
}

// Bundles of a lidar that it may meet; what they are goes to `r`.
__device__ int bundles_near(Views const& p, Looked const& looked, Looks const& looks, Bundles const& bundles,
                            Prepared const& out, int64_t r) {
    bool const there = r < looks.most && r < *looks.count;
    int64_t const number = there ? out.numbers[r] : 0;
    Candidates c = there ? bands_from(p, bundles, looked.bounds[number], number / p.scene.g.n) : no_candidates();
    int const n = count_of(bundles, c);
    if (n) out.work.candidates[r] = c;
    return n;
}

// Of an image, whose rows are numbered; a lidar's bundles are numbered here.
template <int S>
__device__ int64_t candidates_of(Views const& p, Looked const& looked, Looks const& looks, Bundles const& bundles,
                                 Prepared const& out, int64_t tile, int64_t r) {
    if (S) return r < looks.most ? out.work.begins[r + 1] - out.work.begins[r] : 0;
    int const n = bundles_near(p, looked, looks, bundles, out, r);
    number<1>(out.work, looks.most, tile, {n});
    return n;
}

template <bool MOVING, int S>
__global__ void __launch_bounds__(THREADS, 4)
    pack_view_rows_kernel(Views p, Looked looked, Looks looks, Bundles bundles, Prepared out) {
    wait_then_launch_dependents();
    int64_t const tile = S ? blockIdx.x : fetch_tile(out.work.next), r = THREADS * tile + threadIdx.x;
    if (candidates_of<S>(p, looked, looks, bundles, out, tile, r) == 0) return;
    auto const [view, i] = look_of(p, out.numbers[r]);
    Gaussians const g = seen_from(p.scene, view);
    Frame<float> const frame = frame_of(g, i);
    float const opacity = opacity_of(p.scene, view, i);
    using Row = PartRow<MOVING, features_for<S>>;
    reinterpret_cast<Row*>(out.rows)[r] = row_from<MOVING, S>(p.scene, view, i, g, frame, opacity);
}

using Prepare = void (*)(Views, Looked, Looks, Bundles, Prepared);

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

// Radix sort is stable, and the numbers ascend.
uint32_t const* by_depth(Looked const& looked, Looks const& looks, Queue const& queue) {
    auto const array = [&] { return queue.memory.array<uint32_t>(looks.most); };
    uint32_t *keys = array(), *sorted = array();
    if (!looks.most) return sorted;
    launch_pdl(gather_depth_keys_kernel, blocks_for(looks.most), THREADS, queue, looked, looks, keys);
    sort_pairs({looks.most, keys, looks.chosen, nullptr, sorted, looks.count}, looked.bits, queue);
    return sorted;
}

void find_rows(Views const& p, Looked const& looked, Looks const& looks, Bundles const& bundles, Prepared const& out,
               Queue const& queue) {
    launch_pdl(find_view_candidates_kernel, blocks_for(looks.most + 1), THREADS, queue, p, looked, looks, bundles, out);
    launch_pdl(find_view_near_plane_spans_kernel, unsigned(2 * multiprocessors()), THREADS, queue, p, bundles, out);
}

}  // namespace

uint32_t const* prepare_looks(Views const& p, Looked const& looked, Looks const& looks, BundleParams const& bundles,
                              BundleWork const& work, float* rows, Queue const& queue) {
    Prepared const out = {by_depth(looked, looks, queue), work, rows};
    auto const blocks = blocks_for(looks.most + 1);
    if (p.rays.is_camera)
        find_rows(p, looked, looks, bundles.bundles, out, queue);
    else
        bound_bundles(bundles, work, queue);
    Prepare const kernel = prepare_for(p);
    launch_pdl(kernel, blocks, THREADS, queue, p, looked, looks, bundles.bundles, out);
    return out.numbers;
}

}  // namespace nurec::cuda
