// SPDX-License-Identifier: Apache-2.0
// Lists of warp tiles. A candidate is listed unless the tests of math/ray_pyramid.cuh, math/outline.cuh and
// math/conic.cuh exclude it. The candidates of all Gaussians are numbered, and a lane tests one of them: so work is
// balanced, whether a Gaussian has one candidate or, near the sensor, all warp tiles of the view.
#include "../../common/launch.cuh"
#include "super_tiles.cuh"
#include "intersect.cuh"

namespace nurec::cuda {
namespace {

constexpr int MAX_BLOCKS = 4096;  // of intersect_candidates_kernel at most
constexpr int MAX_NEAR_PLANE_SPANS =
    1 << 16;  // of Gaussians without an outline, in addition to one for each visible one

int64_t blocks_of_batches(int64_t batches) {
    return (batches + BLOCK_BATCHES - 1) / BLOCK_BATCHES;
}

// Returns the zeros that intersect() takes: states of tiles, counts, and the next tile.
int64_t zeros_to_intersect(int64_t batches) {
    return blocks_of_batches(batches) + int64_t(sizeof(Counts) / sizeof(uint64_t)) + 1;
}

SuperTileEntries intersect(BinParams const& p, BinWork& work, int64_t capacity, Queue const& queue) {
    int64_t const tiles = blocks_of_batches(work.batches);
    auto* const states = take<uint64_t>(work.zeros, zeros_to_intersect(work.batches), queue);
    auto* const counts = reinterpret_cast<Counts*>(states + tiles);
    Compaction const all = {states, reinterpret_cast<unsigned*>(counts + 1), counts};
    SuperTileEntries const out = {queue.memory.array<uint32_t>(capacity), queue.memory.array<uint32_t>(capacity),
                                  counts, capacity};
    auto* const kernel =
        p.warp_tiles.is_camera ? intersect_candidates_kernel<true> : intersect_candidates_kernel<false>;
    auto const blocks = unsigned(larger<int64_t>(smaller<int64_t>(tiles, MAX_BLOCKS), 1));
    launch_pdl(kernel, blocks, INTERSECT_THREADS, queue, p, work, all, out);
    return out;
}

__global__ void store_required_entries_kernel(Counts const* counts, int64_t* needed) {
    wait_then_launch_dependents();
    *needed = counts->needed();
}

}  // namespace

BinWork make_bin_work(BinParams const& p, int64_t* begins, int64_t capacity, Queue const& queue) {
    auto const& memory = queue.memory;
    WarpTiles const& b = p.warp_tiles;
    int64_t const tiles = blocks_for(p.v + 1), batches = capacity < 0 ? 0 : max_batches(p.v, capacity);
    BinWork work = {};
    work.begins = begins, work.batches = batches, work.batch_first_gaussian = memory.array<uint32_t>(batches);
    work.zeros =
        zeros_at_once(tiles + 2 + (capacity < 0 ? 0 : zeros_to_intersect(batches) + zeros_to_list(b, capacity)), queue);
    work.states = take<uint64_t>(work.zeros, tiles + 2, queue);  // followed by other counters
    auto* const counts = reinterpret_cast<int*>(work.states + tiles);
    work.next = reinterpret_cast<unsigned*>(counts + 2);
    if (b.is_camera) {
        work.rows = memory.array<ImageRows>(p.v);
        int64_t const capacity = p.v + MAX_NEAR_PLANE_SPANS;
        work.near = {capacity, counts, memory.array<uint32_t>(p.v), memory.array<Interval<int>>(capacity)};
        return work;
    }
    work.bounds = memory.array<float4>(PYRAMID_VECTORS * b.n),
    work.slabs = memory.array<BeamSlab<float>>(BEAM_SLABS * b.n);
    work.candidates = p.candidates ? p.candidates : memory.array<Candidates>(p.v);
    return work;
}

void assign_batches(BinParams const& p, BinWork& work, int64_t batches, Queue const& queue) {
    work.batches = batches, work.batch_first_gaussian = queue.memory.array<uint32_t>(batches);
    if (p.v) launch_pdl(assign_batches_kernel, blocks_for(p.v), THREADS, queue, p, work);
}

void count_entries(BinParams const& p, BinWork& work, int64_t* needed, Queue const& queue) {
    launch_pdl(store_required_entries_kernel, 1, 1, queue, intersect(p, work, 0, queue).counts, needed);
}

void list_entries(BinParams const& p, BinWork& work, ListEntries const& out, int64_t* needed, Queue const& queue) {
    SuperTileEntries const entries = intersect(p, work, out.capacity, queue);
    make_lists(entries, p.warp_tiles, out, needed, work.zeros, queue);
}

}  // namespace nurec::cuda
