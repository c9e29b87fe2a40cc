// SPDX-License-Identifier: Apache-2.0
// Intersects candidates with warp tiles and writes the entries that remain, in one pass: a lane tests a warp tile of a
// lidar or a row of an image's super-tiles, and look_back.cuh finds where its entries go.
#pragma once

#include "../../common/launch.cuh"
#include "../../common/look_back.cuh"
#include "intersections.cuh"
#include "locate.cuh"

namespace nurec::cuda {

constexpr int INTERSECT_THREADS = 128, INTERSECT_WARPS = INTERSECT_THREADS / 32,
              BLOCK_BATCHES = INTERSECT_WARPS * WARP_BATCHES;

// Blocks that fit on a multiprocessor without spilling.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 800
constexpr int INTERSECT_BLOCKS_PER_SM = 9;
#elif defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
constexpr int INTERSECT_BLOCKS_PER_SM = 7;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int INTERSECT_BLOCKS_PER_SM = 8;
#else
constexpr int INTERSECT_BLOCKS_PER_SM = 10;
#endif

struct Compaction {
    uint64_t* states;    // [tiles] zeros at first
    unsigned int* next;  // [1] zero at first: the next free tile
    Counts* counts;      // [1] zero at first
};

// Returns the number of candidates that have batches.
__device__ inline int64_t candidates_in(BinParams const& p, BinWork const& work) {
    return smaller(work.begins[p.v], 32 * work.batches);
}

// Used if the number of batches was not known when candidates were numbered.
static __global__ void assign_batches_kernel(BinParams p, BinWork work) {
    wait_then_launch_dependents();
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x, end = end_of_visible(p);
    assign_batches_of(work, i, work.begins[smaller(i, end)], work.begins[smaller(i + 1, end)]);
}

// A warp's batches; each lane has its own candidates. In shared memory, so that the code does not grow with the
// batches.
template <bool CAMERA>
using Intersections = Intersection<CAMERA>[WARP_BATCHES][32];

template <bool CAMERA>
__device__ Intersection<CAMERA> candidate(BinParams const& p, Candidate const& found, int warp_tile, bool there) {
    if constexpr (CAMERA)
        return {found.i, uint32_t(found.k), there, {}};
    else
        return {found.i, uint32_t(warp_tile), there && warp_tile != NO_TILE};
}

template <bool CAMERA>
__device__ void store_candidates(BinParams const& p, BinWork const& work, CandidateBatches const& batches,
                                 Intersections<CAMERA>& intersections) {
    Candidate found[WARP_BATCHES];
    int warp_tiles[WARP_BATCHES] = {};
    locate_candidates(p, work, batches, found);
    if (!CAMERA) warp_tiles_of(p, work, found, warp_tiles);
#pragma unroll
    for (int k = 0; k < WARP_BATCHES; ++k) {
        bool const there = 32 * k + int(threadIdx.x) % 32 < batches.there;
        intersections[k][threadIdx.x % 32] = candidate<CAMERA>(p, found[k], warp_tiles[k], there);
    }
}

// Stores the totals, after the last tile.
__device__ inline void tell(BinParams const& p, BinWork const& work, Compaction const& all, int64_t tiles) {
    int64_t const candidates = work.begins[p.v];
    all.counts->entries = tiles ? int64_t(wait_for_state(all.states + tiles - 1, PREFIX) & COUNT_MASK) : 0;
    all.counts->enough = candidates > 32 * work.batches ? (candidates + 31) / 32 * ENTRIES_PER_BATCH : 0;
}

template <bool CAMERA>
__device__ Found intersect_batches(BinParams const& p, BinWork const& work, CandidateBatches const& batches,
                                   Intersections<CAMERA>& intersections) {
    int const lane = int(threadIdx.x) % 32;
    Found own = {};
    if (batches.there <= 0) return own;
    store_candidates<CAMERA>(p, work, batches, intersections);
#pragma unroll 1
    for (int k = 0; 32 * k < batches.there; ++k) {
        Intersection<CAMERA> const intersection = tested(p, work, intersections[k][lane]);
        Found const found = found_of(intersection);
        intersections[k][lane] = intersection, own.entries += found.entries, own.listed += found.listed;
    }
    return own;
}

// A block's tile of batches and its intersections, in shared memory.
template <bool CAMERA>
struct Tile {
    int64_t number;  // -1: none
    WarpCounts<INTERSECT_WARPS> share;
    Intersections<CAMERA> intersections[INTERSECT_WARPS];
};

// A tile's entries can be written when all earlier tiles have published their counts. On a lidar, a block does not wait
// for them at once: it first intersects its next tile, and keeps two. On an image most blocks have one tile, and a
// second one in shared memory would leave fewer blocks on a multiprocessor. Blocks cannot deadlock: tiles are fetched
// in ascending order, and a block publishes its count before it waits (look_back.cuh).
template <bool CAMERA>
constexpr int TILES_KEPT = CAMERA ? 1 : 2;

__device__ inline CandidateBatches batches_of_tile(int64_t tile, int64_t end) {
    return batches_from(BLOCK_BATCHES * tile + WARP_BATCHES * (int(threadIdx.x) / 32), end);
}

// Intersects a tile and publishes its count. All threads of a block call it.
template <bool CAMERA>
__device__ void intersect_tile(BinParams const& p, BinWork const& work, Compaction const& all, int64_t end,
                               Tile<CAMERA>& tile) {
    CandidateBatches const mine = batches_of_tile(tile.number, end);
    Found const own = intersect_batches<CAMERA>(p, work, mine, tile.intersections[threadIdx.x / 32]);
    auto const listed = static_cast<unsigned long long>(warp_offsets(0, own.listed).all);
    if (threadIdx.x % 32 == 0 && listed) atomicAdd(&all.counts->listed, listed);
    publish_count(all.states, tile.number, unsigned(warp_offsets(0, own.entries).all), tile.share);
}

// Writes a tile's entries in the order of their candidates, as many as fit. All threads of a block call it.
template <bool CAMERA>
__device__ void write_tile(Compaction const& all, int64_t end, Tile<CAMERA> const& tile, SuperTileEntries const& out) {
    CandidateBatches const mine = batches_of_tile(tile.number, end);
    int64_t at = warp_offset(all.states, tile.number, tile.share);
#pragma unroll 1
    for (int k = 0; 32 * k < mine.there; ++k) at = write_batch(tile.intersections[threadIdx.x / 32][k], out, at);
}

template <bool CAMERA>
__global__ void __launch_bounds__(INTERSECT_THREADS, INTERSECT_BLOCKS_PER_SM)
    intersect_candidates_kernel(BinParams p, BinWork work, Compaction all, SuperTileEntries out) {
    wait_then_launch_dependents();
    __shared__ Tile<CAMERA> kept[TILES_KEPT<CAMERA>];
    int64_t const end = candidates_in(p, work), tiles = (end + 32 * BLOCK_BATCHES - 1) / (32 * BLOCK_BATCHES);
    if (threadIdx.x < TILES_KEPT<CAMERA>) kept[threadIdx.x].number = -1;
    int64_t tile;
    int turn = 0;
    do {
        tile = fetch_tile(all.next);
        if (threadIdx.x == 0) kept[turn].number = tile < tiles ? tile : -1;
        __syncthreads();
        if (tile < tiles) intersect_tile(p, work, all, end, kept[turn]);
        turn = (turn + 1) % TILES_KEPT<CAMERA>;
        if (kept[turn].number >= 0) write_tile(all, end, kept[turn], out);
    } while (tile < tiles);
    if (tile == tiles && threadIdx.x == 0) tell(p, work, all, tiles);
}

}  // namespace nurec::cuda
