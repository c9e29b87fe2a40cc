// SPDX-License-Identifier: Apache-2.0
// Entries of candidates: a lane has a bundle of a lidar, or a row of an image's.
#pragma once

#include "../common/launch.cuh"
#include "../common/lists.h"
#include "../common/look_back.cuh"
#include "image_rows.cuh"
#include "search.cuh"

namespace nurec::cuda {

constexpr int FIND_WARPS = THREADS / 32, TILE_WORDS = FIND_WARPS * WARP_WORDS;

struct Search {
    uint64_t* states;         // [tiles] zeros at first
    unsigned int* next;       // [1] likewise: the tile that nobody has
    int64_t *found, *needed;  // [1] hits, and what `needed` of count_entries is
};

// Candidates that have words.
__device__ inline int64_t candidates_in(BundleParams const& p, BundleWork const& work) {
    return smaller(work.begins[p.v], 32 * work.words);
}

// Where the room for words was not known when candidates were numbered.
static __global__ void own_kernel(BundleParams p, BundleWork work) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x, begin = work.begins[smaller(i, p.v)];
    own_words(work, i, begin, work.begins[smaller(i + 1, p.v)]);
}

// First a candidate, then what the test leaves of it: of a lidar's bundle its lists, the first one's the lowest bit; of
// an image so many bundles from one on. `what`: the candidate's number among its Gaussian's, then the bundle.
struct Hit {
    uint32_t gaussian, what, lists;  // lists 0: no hit
};

// Numbers of bundles lie 16 bytes of each side by side, as do fans: most lanes have bundles next to one another.
__device__ inline Bundle<float> bundle_at(float4 const* bounds, uint32_t n, uint32_t k) {
    Bundle<float> bundle;
#pragma unroll
    for (int q = 0; q < BUNDLE_VECTORS; ++q) reinterpret_cast<float4*>(&bundle)[q] = bounds[n * unsigned(q) + k];
    return bundle;
}

// Of the lists of a lidar's bundle, those whose rays it may meet.
__device__ inline uint32_t lists_met(BundleParams const& p, BundleWork const& work, uint32_t gaussian,
                                     uint32_t bundle) {
    constexpr uint32_t BOTH = 3;
    auto const n = uint32_t(p.bundles.n);
    Bundle<float> const b = bundle_at(work.bounds, n, bundle);
    if (!p.exact) return b.known > 0 ? BOTH : 0;
    Fan<float> fans[FANS];
#pragma unroll
    for (int k = 0; k < FANS; ++k) fans[k] = work.fans[n * unsigned(k) + bundle];
    Facing<float> const f = facing(reinterpret_cast<Seen<float> const*>(p.shapes)[gaussian], b);
    if (b.known > 1) return BOTH;
    if (!(b.known > 0) || f.ahead < 0) return 0;
    uint32_t met = 0;
#pragma unroll
    for (int k = 0; k < FANS; ++k)
        if (meets(f, fans[k])) met |= 1u << (2 * k / FANS);
    return met;
}

__device__ inline uint32_t listed_as(BundleParams const& p, int64_t i) {
    return uint32_t(p.index ? p.index[i] : i);
}

template <bool CAMERA>
__device__ Hit tested(BundleParams const& p, BundleWork const& work, Hit const& hit) {
    if (!hit.lists) return {};
    if (!CAMERA) return {hit.gaussian, hit.what, lists_met(p, work, hit.gaussian, hit.what)};
    ImageRows const rows = work.rows[hit.gaussian];
    Interval<int> const met = bundles_met(p.bundles, work.near, rows, int(hit.what));
    if (met.low > met.high) return {};
    uint32_t const first = uint32_t(rows.first + int(hit.what) * p.bundles.columns + met.low);
    return {listed_as(p, hit.gaussian), first, uint32_t(met.high - met.low + 1)};
}

// A warp's words, each lane its own candidates of them. In shared memory, so that code does not grow with the words.
using Hits = Hit[WARP_WORDS][32];

template <bool CAMERA>
__device__ void keep_candidates(BundleParams const& p, BundleWork const& work, Words const& words, Hits& hits) {
    Candidate found[WARP_WORDS];
    int bundles[WARP_WORDS];
    find_candidates(p, work, words, found);
    if (!CAMERA) bundles_of(p, work, found, bundles);
#pragma unroll
    for (int k = 0; k < WARP_WORDS; ++k) {
        bool const there = 32 * k + int(threadIdx.x) % 32 < words.there && (CAMERA || bundles[k] != NONE);
        uint32_t const gaussian = CAMERA ? found[k].i : listed_as(p, found[k].i);
        hits[k][threadIdx.x % 32] = {gaussian, uint32_t(CAMERA ? found[k].k : bundles[k]), uint32_t(there)};
    }
}

template <bool CAMERA>
__device__ int entries_of(Hit const& hit) {
    return CAMERA ? int(hit.lists) : __popc(hit.lists);
}

// Both write those of a word from `at` on, as many as there is room for, and return where the next word's begin.
__device__ inline int64_t write_bundles(Hit const& hit, Written const& out, int64_t at, int64_t room) {
    Placed const place = placed_from(at, __popc(hit.lists));
    int64_t mine = place.mine;
#pragma unroll
    for (unsigned k = 0; k < 2; ++k) {
        if (!(hit.lists >> k & 1)) continue;
        if (mine < room) out.tiles[mine] = 2 * hit.what + k, out.gaussians[mine] = hit.gaussian;
        ++mine;
    }
    return place.all;
}

// Lanes take one entry after another, whoever's it is, so that neighbours are written together.
__device__ inline int64_t write_runs(Hit const& hit, Written const& out, int64_t at, int64_t room) {
    Placed const place = placed_from(at, int(hit.lists));
    int const before = int(place.mine - at), n = int(smaller(place.all, larger(room, at)) - at);
    for (int first = 0; first < n; first += 32) {
        int const e = first + int(threadIdx.x % 32), owner = lanes_up_to(e, before) - 1;
        uint32_t const run = __shfl_sync(ALL_LANES, hit.what, owner),
                       gaussian = __shfl_sync(ALL_LANES, hit.gaussian, owner);
        int const begin = __shfl_sync(ALL_LANES, before, owner);
        if (e < n) out.tiles[at + e] = run + uint32_t(e - begin), out.gaussians[at + e] = gaussian;
    }
    return place.all;
}

// Behind the last tile.
__device__ inline void tell(BundleParams const& p, BundleWork const& work, Search const& all, int64_t tiles) {
    int64_t const found = tiles ? int64_t(state_of(all.states + tiles - 1, ALL) & COUNT) : 0;
    int64_t const candidates = work.begins[p.v];
    int64_t const enough = candidates > 32 * work.words ? (candidates + 31) / 32 * WORDS_SHARE : 0;
    *all.found = found, *all.needed = larger(found, enough);
}

// Entries in the order of their candidates, as many as there is room for.
template <bool CAMERA>
__global__ void find_kernel(BundleParams p, BundleWork work, Search all, Written out, int64_t room) {
    __shared__ Hits hits_of_block[FIND_WARPS];
    int const lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    Hits& hits = hits_of_block[warp];
    int64_t const end = candidates_in(p, work), tiles = (end + 32 * TILE_WORDS - 1) / (32 * TILE_WORDS);
    while (true) {
        int64_t const tile = next_tile(all.next);
        if (tile == tiles && threadIdx.x == 0) tell(p, work, all, tiles);
        if (tile >= tiles) return;
        Words const mine = words_from(TILE_WORDS * tile + WARP_WORDS * warp, end);
        if (mine.there > 0) keep_candidates<CAMERA>(p, work, mine, hits);
        int own = 0;
#pragma unroll 1
        for (int k = 0; 32 * k < mine.there; ++k) {
            Hit const hit = tested<CAMERA>(p, work, hits[k][lane]);
            hits[k][lane] = hit, own += entries_of<CAMERA>(hit);
        }
        int64_t at = warp_begin<FIND_WARPS>(all.states, tile, unsigned(placed_from(0, own).all));
#pragma unroll 1
        for (int k = 0; 32 * k < mine.there; ++k)
            at = CAMERA ? write_runs(hits[k][lane], out, at, room) : write_bundles(hits[k][lane], out, at, room);
    }
}

}  // namespace nurec::cuda
