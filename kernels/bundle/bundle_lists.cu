// SPDX-License-Identifier: Apache-2.0
// Lists of bundles. Of a Gaussian's candidates those are listed which the tests of math/bundle.cuh, math/outline.cuh
// and math/conic.cuh cannot rule out. The candidates of all Gaussians are numbered, and a lane tests one: work is even,
// whether a Gaussian has one candidate or, near the sensor, all bundles of the view.
#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../common/warp.cuh"
#include "bounds.cuh"
#include "find.cuh"
#include "image_rows.cuh"

namespace nurec::cuda {
namespace {

constexpr int BLOCKS = 2048;    // that go through words, at most
constexpr int SPANS = 1 << 16;  // of Gaussians without an outline, besides one for each that is visible

// ---- a lidar

__global__ void look_kernel(BundleParams p, BundleWork work) {
    int64_t const tile = next_tile(work.next), i = THREADS * tile + threadIdx.x;
    Candidates c = i < p.v ? on_sphere(p.bundles, load2(p.low, i), load2(p.high, i)) : no_candidates();
    int const n = count_of(p.bundles, c);
    if (n != 0) work.candidates[i] = c;
    number(work, p.v, tile, n);
}

// ---- an image

__device__ Outline<float> outline_at(BundleParams const& p, int64_t i) {
    return reinterpret_cast<Outline<float> const*>(p.shapes)[p.index[i]];
}

__global__ void look_at_image_kernel(BundleParams p, BundleWork work) {
    int64_t const tile = next_tile(work.next), i = THREADS * tile + threadIdx.x;
    Candidates c = i < p.v ? in_image(p.bundles, load2(p.low, i), load2(p.high, i)) : no_candidates();
    if (rows_of(c))
        work.rows[i] = p.exact ? rows_within(p.bundles, c, outline_at(p, i), *p.view, work.near, uint32_t(i))
                               : boxed(p.bundles, c);
    number(work, p.v, tile, rows_of(c));
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

void find(BundleParams const& p, BundleWork const& work, Written const& out, int64_t room, int64_t* found,
          int64_t* needed, Queue const& queue) {
    int64_t const tiles = (work.words + TILE_WORDS - 1) / TILE_WORDS;
    auto* const states = zeros<uint64_t>(tiles + 1, queue);  // the last is the next tile's number
    Search const all = {states, reinterpret_cast<unsigned*>(states + tiles), found, needed};
    auto* const kernel = p.bundles.is_camera ? find_kernel<true> : find_kernel<false>;
    auto const blocks = unsigned(larger<int64_t>(smaller<int64_t>(tiles, BLOCKS), 1));
    kernel<<<blocks, THREADS, 0, queue.stream>>>(p, work, all, out, room);
}

void number_bundles(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    bound_bundles(p, work, queue);
    look_kernel<<<blocks_for(p.v + 1), THREADS, 0, queue.stream>>>(p, work);
}

void number_rows(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    look_at_image_kernel<<<blocks_for(p.v + 1), THREADS, 0, queue.stream>>>(p, work);
    if (p.exact) near_spans_kernel<<<unsigned(2 * multiprocessors()), THREADS, 0, queue.stream>>>(p, work);
}

}  // namespace

BundleWork bundle_work(BundleParams const& p, int64_t* begins, int64_t words, Queue const& queue) {
    auto const& memory = queue.memory;
    Bundles const& b = p.bundles;
    int64_t const tiles = blocks_for(p.v + 1);
    BundleWork work = {};
    work.begins = begins, work.words = words, work.owners = memory.array<uint32_t>(words);
    work.states = zeros<uint64_t>(tiles + 2, queue);  // and behind them what else is counted from 0
    auto* const counts = reinterpret_cast<int*>(work.states + tiles);
    work.next = reinterpret_cast<unsigned*>(counts + 2);
    if (b.is_camera) {
        work.rows = memory.array<ImageRows>(p.v);
        int64_t const room = p.v + SPANS;
        work.near = {room, counts, memory.array<uint32_t>(p.v), memory.array<Interval<int>>(room)};
        return work;
    }
    work.bounds = memory.array<float4>(BUNDLE_VECTORS * b.n), work.fans = memory.array<Fan<float>>(FANS * b.n);
    work.candidates = memory.array<Candidates>(p.v);
    return work;
}

void number_candidates(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    p.bundles.is_camera ? number_rows(p, work, queue) : number_bundles(p, work, queue);
}

void own_candidates(BundleParams const& p, BundleWork& work, int64_t words, Queue const& queue) {
    work.words = words, work.owners = queue.memory.array<uint32_t>(words);
    if (p.v) own_kernel<<<blocks_for(p.v), THREADS, 0, queue.stream>>>(p, work);
}

void count_entries(BundleParams const& p, BundleWork const& work, int64_t* needed, Queue const& queue) {
    find(p, work, {}, 0, queue.memory.array<int64_t>(1), needed, queue);
}

void list_entries(BundleParams const& p, BundleWork const& work, Entries const& out, int64_t* needed,
                  Queue const& queue) {
    auto* const found = queue.memory.array<int64_t>(1);
    Written const written = room_for(out.room, found, queue);
    find(p, work, written, out.room, found, needed, queue);
    sort_into_lists(written, p.bundles.lists(), out, queue);
}

}  // namespace nurec::cuda
