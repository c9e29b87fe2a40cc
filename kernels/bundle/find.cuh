// SPDX-License-Identifier: Apache-2.0
// Entries of candidates: a lane has a bundle of a lidar, or a row of an image's clusters.
#pragma once

#include "../common/launch.cuh"
#include "../common/look_back.cuh"
#include "hits.cuh"
#include "search.cuh"

namespace nurec::cuda {

constexpr int FIND_THREADS = 128, FIND_WARPS = FIND_THREADS / 32, TILE_WORDS = FIND_WARPS * WARP_WORDS;

// That fit on a multiprocessor, without spilling.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 800
constexpr int FIND_BLOCKS = 9;
#elif defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
constexpr int FIND_BLOCKS = 7;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int FIND_BLOCKS = 8;
#else
constexpr int FIND_BLOCKS = 10;
#endif

struct Search {
    uint64_t* states;    // [tiles] zeros at first
    unsigned int* next;  // [1] likewise: the tile that nobody has
    Counts* counts;      // [1] likewise
};

// Candidates that have words.
__device__ inline int64_t candidates_in(BundleParams const& p, BundleWork const& work) {
    return smaller(work.begins[p.v], 32 * work.words);
}

// Where the room for words was not known when candidates were numbered.
static __global__ void assign_batches_kernel(BundleParams p, BundleWork work) {
    wait_then_launch_dependents();
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x, begin = work.begins[smaller(i, p.v)];
    own_words(work, i, begin, work.begins[smaller(i + 1, p.v)]);
}

// A warp's words, each lane its own candidates of them. In shared memory, so that code does not grow with the words.
template <bool CAMERA>
using Hits = Hit<CAMERA>[WARP_WORDS][32];

template <bool CAMERA>
__device__ Hit<CAMERA> candidate(BundleParams const& p, Candidate const& found, int bundle, bool there) {
    if constexpr (CAMERA)
        return {found.i, uint32_t(found.k), there, {}};
    else
        return {found.i, uint32_t(bundle), there && bundle != NONE};
}

template <bool CAMERA>
__device__ void keep_candidates(BundleParams const& p, BundleWork const& work, Words const& words, Hits<CAMERA>& hits) {
    Candidate found[WARP_WORDS];
    int bundles[WARP_WORDS] = {};
    find_candidates(p, work, words, found);
    if (!CAMERA) bundles_of(p, work, found, bundles);
#pragma unroll
    for (int k = 0; k < WARP_WORDS; ++k) {
        bool const there = 32 * k + int(threadIdx.x) % 32 < words.there;
        hits[k][threadIdx.x % 32] = candidate<CAMERA>(p, found[k], bundles[k], there);
    }
}

// Behind the last tile.
__device__ inline void tell(BundleParams const& p, BundleWork const& work, Search const& all, int64_t tiles) {
    int64_t const candidates = work.begins[p.v];
    all.counts->entries = tiles ? int64_t(wait_for_state(all.states + tiles - 1, PREFIX) & COUNT_MASK) : 0;
    all.counts->enough = candidates > 32 * work.words ? (candidates + 31) / 32 * WORDS_SHARE : 0;
}

template <bool CAMERA>
__device__ Found find_words(BundleParams const& p, BundleWork const& work, Words const& words, Hits<CAMERA>& hits) {
    int const lane = int(threadIdx.x) % 32;
    Found own = {};
    if (words.there <= 0) return own;
    keep_candidates<CAMERA>(p, work, words, hits);
#pragma unroll 1
    for (int k = 0; 32 * k < words.there; ++k) {
        Hit<CAMERA> const hit = tested(p, work, hits[k][lane]);
        Found const found = found_of(hit);
        hits[k][lane] = hit, own.entries += found.entries, own.listed += found.listed;
    }
    return own;
}

// A block's tile of words, and what it found there. In shared memory.
template <bool CAMERA>
struct Tile {
    int64_t number;  // -1: none
    WarpCounts<FIND_WARPS> share;
    Hits<CAMERA> hits[FIND_WARPS];
};

// Where a tile's entries begin is known when all blocks that have tiles before it have told how many theirs are. A
// block of a lidar does not wait for them: before it asks, it looks for those of its next tile. Of an image, most
// blocks have one tile, and twice the hits would leave room for fewer blocks.
template <bool CAMERA>
constexpr int TILES_KEPT = CAMERA ? 1 : 2;

__device__ inline Words words_of_tile(int64_t tile, int64_t end) {
    return words_from(TILE_WORDS * tile + WARP_WORDS * (int(threadIdx.x) / 32), end);
}

// By a block together.
template <bool CAMERA>
__device__ void find_tile(BundleParams const& p, BundleWork const& work, Search const& all, int64_t end,
                          Tile<CAMERA>& tile) {
    Words const mine = words_of_tile(tile.number, end);
    Found const own = find_words<CAMERA>(p, work, mine, tile.hits[threadIdx.x / 32]);
    auto const listed = static_cast<unsigned long long>(warp_offsets(0, own.listed).all);
    if (threadIdx.x % 32 == 0 && listed) atomicAdd(&all.counts->listed, listed);
    publish_count(all.states, tile.number, unsigned(warp_offsets(0, own.entries).all), tile.share);
}

// Likewise: entries in the order of their candidates, as many as there is room for.
template <bool CAMERA>
__device__ void write_tile(Search const& all, int64_t end, Tile<CAMERA> const& tile, ClusterEntries const& out) {
    Words const mine = words_of_tile(tile.number, end);
    int64_t at = warp_offset(all.states, tile.number, tile.share);
#pragma unroll 1
    for (int k = 0; 32 * k < mine.there; ++k) at = write_word(tile.hits[threadIdx.x / 32][k], out, at);
}

template <bool CAMERA>
__global__ void __launch_bounds__(FIND_THREADS, FIND_BLOCKS)
    intersect_candidates_kernel(BundleParams p, BundleWork work, Search all, ClusterEntries out) {
    wait_then_launch_dependents();
    __shared__ Tile<CAMERA> kept[TILES_KEPT<CAMERA>];
    int64_t const end = candidates_in(p, work), tiles = (end + 32 * TILE_WORDS - 1) / (32 * TILE_WORDS);
    if (threadIdx.x < TILES_KEPT<CAMERA>) kept[threadIdx.x].number = -1;
    int64_t tile;
    int turn = 0;
    do {
        tile = fetch_tile(all.next);
        if (threadIdx.x == 0) kept[turn].number = tile < tiles ? tile : -1;
        __syncthreads();
        if (tile < tiles) find_tile(p, work, all, end, kept[turn]);
        turn = (turn + 1) % TILES_KEPT<CAMERA>;
        if (kept[turn].number >= 0) write_tile(all, end, kept[turn], out);
    } while (tile < tiles);
    if (tile == tiles && threadIdx.x == 0) tell(p, work, all, tiles);
}

}  // namespace nurec::cuda
