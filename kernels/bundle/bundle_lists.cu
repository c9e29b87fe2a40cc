// SPDX-License-Identifier: Apache-2.0
// Lists of bundles. Of a Gaussian's candidates those are listed which the tests of math/ray_pyramid.cuh,
// math/outline.cuh and math/conic.cuh cannot rule out. The candidates of all Gaussians are numbered, and a lane tests
// one: work is even, whether a Gaussian has one candidate or, near the sensor, all bundles of the view.
#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../common/warp.cuh"
#include "bounds.cuh"
#include "clusters.cuh"
#include "find.cuh"
#include "image_rows.cuh"

namespace nurec::cuda {
namespace {

constexpr int BLOCKS = 4096;    // that go through words, at most
constexpr int SPANS = 1 << 16;  // of Gaussians without an outline, besides one for each that is visible

__device__ int64_t end_of_visible(BundleParams const& p) {
    return smaller(p.v, *p.count);
}

// ---- a lidar

constexpr int EACH = 4;  // Gaussians of a thread, whose counts are read together

__global__ void number_candidates_kernel(BundleParams p, BundleWork work) {
    wait_then_launch_dependents();
    int64_t const tile = fetch_tile(work.next), first = first_of_thread<EACH>(tile), end = end_of_visible(p);
    int64_t index[EACH];
    int n[EACH];
#pragma unroll
    for (int k = 0; k < EACH; ++k) index[k] = first + 32 * k < end ? p.index[first + 32 * k] : -1;
#pragma unroll
    for (int k = 0; k < EACH; ++k) n[k] = index[k] < 0 ? 0 : p.counts[index[k]];
    number(work, p.v, tile, n);
}

// ---- an image

__device__ Outline<float> outline_at(BundleParams const& p, int64_t i) {
    return reinterpret_cast<Outline<float> const*>(p.shapes)[p.index[i]];
}

__global__ void find_image_candidates_kernel(BundleParams p, BundleWork work) {
    wait_then_launch_dependents();
    int64_t const tile = fetch_tile(work.next), i = THREADS * tile + threadIdx.x;
    Candidates c = i < end_of_visible(p) ? in_image(p.bundles, p.bounds[p.index[i]]) : no_candidates();
    if (rows_of(c))
        work.rows[i] =
            p.exact ? rows_within(p.bundles, c, outline_at(p, i), *p.view, work.near, uint32_t(i)) : boxed(c);
    number<1>(work, p.v, tile, {cluster_rows_of(c)});
}

__global__ void find_near_plane_spans_kernel(BundleParams p, BundleWork work) {
    wait_then_launch_dependents();
    __shared__ View<double> view;
    copy_view(view, *p.view);
    __syncthreads();
    for (int n = int(blockIdx.x); n < *work.near.counts; n += int(gridDim.x)) {
        uint32_t const i = work.near.which[n];
        ImageRows const rows = work.rows[i];
        InView const g = in_view(p.g, p.index[i], p.g.opacities[p.index[i]]);
        for (int k = int(threadIdx.x); k < rows.rows; k += THREADS)
            work.near.spans[rows.spans + k] = near_span(p.bundles, view, g, rows, k);
    }
}

// ---- both

int64_t tiles_of_words(int64_t words) {
    return (words + TILE_WORDS - 1) / TILE_WORDS;
}

// States of tiles, counts, and the tile that nobody has.
int64_t zeros_to_find(int64_t words) {
    return tiles_of_words(words) + int64_t(sizeof(Counts) / sizeof(uint64_t)) + 1;
}

ClusterEntries find(BundleParams const& p, BundleWork& work, int64_t room, Queue const& queue) {
    int64_t const tiles = tiles_of_words(work.words);
    auto* const states = take<uint64_t>(work.zeros, zeros_to_find(work.words), queue);
    auto* const counts = reinterpret_cast<Counts*>(states + tiles);
    Search const all = {states, reinterpret_cast<unsigned*>(counts + 1), counts};
    ClusterEntries const out = {queue.memory.array<uint32_t>(room), queue.memory.array<uint32_t>(room), counts, room};
    auto* const kernel = p.bundles.is_camera ? intersect_candidates_kernel<true> : intersect_candidates_kernel<false>;
    auto const blocks = unsigned(larger<int64_t>(smaller<int64_t>(tiles, BLOCKS), 1));
    launch_pdl(kernel, blocks, FIND_THREADS, queue, p, work, all, out);
    return out;
}

__global__ void store_required_entries_kernel(Counts const* counts, int64_t* needed) {
    wait_then_launch_dependents();
    *needed = counts->needed();
}

void number_bundles(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    launch_pdl(number_candidates_kernel, blocks_for((p.v + EACH) / EACH), THREADS, queue, p, work);
    bound_bundles(p, work, queue);
}

void number_rows(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    launch_pdl(find_image_candidates_kernel, blocks_for(p.v + 1), THREADS, queue, p, work);
    if (p.exact) launch_pdl(find_near_plane_spans_kernel, unsigned(2 * multiprocessors()), THREADS, queue, p, work);
}

}  // namespace

BundleWork bundle_work(BundleParams const& p, int64_t* begins, int64_t room, Queue const& queue) {
    auto const& memory = queue.memory;
    Bundles const& b = p.bundles;
    int64_t const tiles = blocks_for(p.v + 1), words = room < 0 ? 0 : most_words(p.v, room);
    BundleWork work = {};
    work.begins = begins, work.words = words, work.owners = memory.array<uint32_t>(words);
    work.zeros = zeros_at_once(tiles + 2 + (room < 0 ? 0 : zeros_to_find(words) + words_to_list(b, room)), queue);
    work.states = take<uint64_t>(work.zeros, tiles + 2, queue);  // and behind them what else is counted from 0
    auto* const counts = reinterpret_cast<int*>(work.states + tiles);
    work.next = reinterpret_cast<unsigned*>(counts + 2);
    if (b.is_camera) {
        work.rows = memory.array<ImageRows>(p.v);
        int64_t const room = p.v + SPANS;
        work.near = {room, counts, memory.array<uint32_t>(p.v), memory.array<Interval<int>>(room)};
        return work;
    }
    work.bounds = memory.array<float4>(BUNDLE_VECTORS * b.n),
    work.slabs = memory.array<BeamSlab<float>>(BEAM_SLABS * b.n);
    work.candidates = p.candidates ? p.candidates : memory.array<Candidates>(p.v);
    return work;
}

void number_candidates(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    p.bundles.is_camera ? number_rows(p, work, queue) : number_bundles(p, work, queue);
}

void own_candidates(BundleParams const& p, BundleWork& work, int64_t words, Queue const& queue) {
    work.words = words, work.owners = queue.memory.array<uint32_t>(words);
    if (p.v) launch_pdl(assign_batches_kernel, blocks_for(p.v), THREADS, queue, p, work);
}

void count_entries(BundleParams const& p, BundleWork& work, int64_t* needed, Queue const& queue) {
    launch_pdl(store_required_entries_kernel, 1, 1, queue, find(p, work, 0, queue).counts, needed);
}

void list_entries(BundleParams const& p, BundleWork& work, ListEntries const& out, int64_t* needed,
                  Queue const& queue) {
    ClusterEntries const entries = find(p, work, out.room, queue);
    make_lists(entries, p.bundles, out, needed, work.zeros, queue);
}

}  // namespace nurec::cuda
