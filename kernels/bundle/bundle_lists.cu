// SPDX-License-Identifier: Apache-2.0
// Lists of bundles. Of a Gaussian's candidates those are listed which the tests of math/bundle.cuh, math/outline.cuh
// and math/conic.cuh cannot rule out. The candidates of all Gaussians are numbered, and a lane tests one: work is even,
// whether a Gaussian has one candidate or, near the sensor, all bundles of the view.
#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../common/sort.h"
#include "../common/warp.cuh"
#include "bounds.cuh"
#include "find.cuh"
#include "image_rows.cuh"

namespace nurec::cuda {
namespace {

constexpr int BLOCKS = 2048;    // that go through words, at most
constexpr int SPANS = 1 << 16;  // of Gaussians without an outline, besides one for each that is visible

// ---- a lidar

__global__ void look_kernel(BundleParams p, BundleWork work, int64_t* counts) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i > p.v) return;
    Candidates c = i < p.v ? on_sphere(p.bundles, load2(p.low, i), load2(p.high, i)) : no_candidates();
    int const n = count_of(p.bundles, work.bins, c);
    counts[i] = n;
    if (n != 0) work.candidates[i] = c;
}

__device__ bool is_visible(BundleParams const& p, int64_t k) {
    return k < p.g.n && (!p.visible || p.visible[k]);
}

// In the order in which Gaussians lie in memory.
__global__ void see_kernel(BundleParams p, Seen<float>* seen) {
    int64_t const k = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (is_visible(p, k)) seen[k] = seen_within(frame_of(p.g, k), reach_of(p.g.opacities[k]));
}

// ---- an image

__global__ void outline_kernel(BundleParams p, StoredOutline* outlines) {
    __shared__ View<float> view;
    copy_numbers(view, p.view);
    __syncthreads();
    int64_t const k = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (is_visible(p, k)) outlines[k] = {outline_of(view, in_view(p.g, k, p.g.opacities[k]))};
}

__global__ void look_at_image_kernel(BundleParams p, BundleWork work, int64_t* counts) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i > p.v) return;
    Candidates c = i < p.v ? in_image(p.bundles, load2(p.low, i), load2(p.high, i)) : no_candidates();
    if (rows_of(c))
        work.rows[i] =
            p.exact ? rows_within(p.bundles, c, work.outlines[p.index[i]].outline, *p.view, work.near, uint32_t(i))
                    : boxed(p.bundles, c);
    counts[i] = rows_of(c);
}

__global__ void near_spans_kernel(BundleParams p, BundleWork work) {
    __shared__ View<double> view;
    copy_view(view, *p.view);
    __syncthreads();
    for (int n = int(blockIdx.x); n < *work.near.counts; n += int(gridDim.x)) {
        uint32_t const i = work.near.which[n];
        ImageRows const rows = work.rows[i];
        InView const g = in_view(p.g, p.index[i], p.g.opacities[p.index[i]]);
        for (int k = int(threadIdx.x); k < rows.spans.n; k += THREADS)
            work.near.spans[rows.spans.begin + k] = near_span(p.bundles, view, g, rows, 0, k);
    }
}

// ---- both

void find(BundleParams const& p, BundleWork const& work, int64_t words, Written const& out, int64_t room,
          int64_t* found, int64_t* needed, Queue const& queue) {
    auto const& memory = queue.memory;
    int64_t const tiles = (words + TILE_WORDS - 1) / TILE_WORDS;
    auto* const states = zeros<uint64_t>(tiles + 1, queue);  // the last is the next tile's number
    Search const all = {
        words, memory.array<uint32_t>(words), states, reinterpret_cast<unsigned int*>(states + tiles), found, needed};
    if (p.v) own_kernel<<<blocks_for(p.v), THREADS, 0, queue.stream>>>(p, work, all);
    auto* const kernel = p.bundles.is_camera ? find_kernel<true> : find_kernel<false>;
    auto const blocks = unsigned(larger<int64_t>(smaller<int64_t>(tiles, BLOCKS), 1));
    kernel<<<blocks, THREADS, 0, queue.stream>>>(p, work, all, out, room);
}

void number_bundles(BundleParams const& p, BundleWork const& work, int64_t* counts, Queue const& queue) {
    bound_bundles(p, work, queue);
    look_kernel<<<blocks_for(p.v + 1), THREADS, 0, queue.stream>>>(p, work, counts);
    if (p.exact && p.g.n) see_kernel<<<blocks_for(p.g.n), THREADS, 0, queue.stream>>>(p, work.seen);
}

void number_rows(BundleParams const& p, BundleWork const& work, int64_t* counts, Queue const& queue) {
    if (p.exact && p.g.n) outline_kernel<<<blocks_for(p.g.n), THREADS, 0, queue.stream>>>(p, work.outlines);
    look_at_image_kernel<<<blocks_for(p.v + 1), THREADS, 0, queue.stream>>>(p, work, counts);
    if (p.exact) near_spans_kernel<<<unsigned(2 * multiprocessors()), THREADS, 0, queue.stream>>>(p, work);
}

}  // namespace

BundleWork bundle_work(BundleParams const& p, int64_t* begins, Queue const& queue) {
    auto const& memory = queue.memory;
    Bundles const& b = p.bundles;
    BundleWork work = {};
    work.begins = begins;
    if (b.is_camera) {
        work.rows = memory.array<ImageRows>(p.v);
        work.outlines = memory.array<StoredOutline>(p.exact && p.index ? p.g.n : 0);
        int64_t const room = p.v + SPANS;
        work.near = {room, zeros<int>(2, queue), memory.array<uint32_t>(p.v), memory.array<Interval<int>>(room)};
        return work;
    }
    work.bounds = memory.array<Bundle<float>>(b.n), work.fans = memory.array<Fan<float>>(FANS * b.n);
    work.bins = memory.array<int>(2 * BINS * b.cells.bands);
    work.candidates = memory.array<Candidates>(p.v);
    work.seen = memory.array<Seen<float>>(!p.exact ? 0 : p.index ? p.g.n : p.v);
    return work;
}

void number_candidates(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    auto* counts = queue.memory.array<int64_t>(p.v + 1);
    auto const number = p.bundles.is_camera ? number_rows : number_bundles;
    number(p, work, counts, queue);
    exclusive_sum(counts, work.begins, p.v + 1, queue);
}

void count_entries(BundleParams const& p, BundleWork const& work, int64_t words, int64_t* needed, Queue const& queue) {
    find(p, work, words, {}, 0, queue.memory.array<int64_t>(1), needed, queue);
}

void list_entries(BundleParams const& p, BundleWork const& work, int64_t words, Entries const& out, int64_t* needed,
                  Queue const& queue) {
    auto* const found = queue.memory.array<int64_t>(1);
    Written const written = room_for(out.room, found, queue);
    find(p, work, words, written, out.room, found, needed, queue);
    sort_into_lists(written, p.bundles.lists(), out, queue);
}

}  // namespace nurec::cuda
