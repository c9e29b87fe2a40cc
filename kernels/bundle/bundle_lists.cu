// SPDX-License-Identifier: Apache-2.0
// Lists of bundles. Of a Gaussian's candidates those are listed which the test of math/bundle.cuh cannot rule out. The
// candidates of all Gaussians are numbered, and a lane tests one: work is even, whether a Gaussian has one candidate
// or, near the sensor, all bundles of the view.
#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../common/sort.h"
#include "../common/warp.cuh"
#include "../math/project.cuh"
#include "bounds.cuh"
#include "search.cuh"

namespace nurec::cuda {
namespace {

constexpr int BLOCKS = 2048;  // that go through words, at most

__global__ void look_kernel(BundleParams p, BundleWork work, int64_t* counts) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i > p.v) return;
    Candidates c = i < p.v ? candidates_of(p, i) : no_candidates();
    int const n = count_of(p.bundles, work.bins, c);
    counts[i] = n;
    if (n != 0) work.candidates[i] = c;
}

// In the order in which Gaussians lie in memory.
__global__ void see_kernel(BundleParams p, Seen<float>* seen) {
    int64_t const k = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (k < p.g.n && (!p.visible || p.visible[k])) seen[k] = seen_within(frame_of(p.g, k), reach_of(p.g.opacities[k]));
}

// Tiles of words are handed out in their order, and a block that has one is running: so whoever waits for those before
// its own waits for blocks that run. A tile's state is 0, then OWN with the hits of the tile, then ALL with those of
// all tiles up to it (decoupled look-back, Merrill and Garland 2016).
constexpr int WARPS = THREADS / 32, TILE_WORDS = WARPS * WARP_WORDS;
constexpr uint64_t OWN = uint64_t(1) << 62, ALL = uint64_t(2) << 62, COUNT = OWN - 1;

// Candidates that have words.
__device__ int64_t candidates_in(BundleParams const& p, BundleWork const& work, Search const& all) {
    return smaller(work.begins[p.v], 32 * all.words);
}

// A warp says together what each of its Gaussians owns: one may own all words.
__global__ void own_kernel(BundleParams p, BundleWork work, Search all) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    int64_t const mine = i < p.v ? work.begins[i] : 0, mine_end = i < p.v ? work.begins[i + 1] : 0;
    for (unsigned left = __ballot_sync(ALL_LANES, (mine + 31) / 32 * 32 < mine_end); left; left &= left - 1) {
        int const lane = __ffs(int(left)) - 1;
        int64_t const begin = __shfl_sync(ALL_LANES, mine, lane), end = __shfl_sync(ALL_LANES, mine_end, lane);
        int64_t word = (begin + 31) / 32 + threadIdx.x % 32;
        for (; 32 * word < end && word < all.words; word += 32)
            all.owners[word] = uint32_t(i - threadIdx.x % 32 + lane);
    }
}

// First a candidate that may be in all lists of its bundle, then what the test leaves of it.
struct Hit {
    uint32_t gaussian, where;  // 4 times the bundle, and which of its lists, the first one's the lowest bit; 0: no hit

    __device__ bool has(int list) const { return where >> list & 1; }
    __device__ uint32_t bundle() const { return where >> 2; }
};

template <bool CAMERA>
constexpr uint32_t ALL_LISTS = CAMERA ? 1 : 3;

// Of the lists of the candidate's bundle, those whose rays it may meet.
template <bool CAMERA>
__device__ uint32_t lists_met(BundleParams const& p, BundleWork const& work, uint32_t gaussian, uint32_t bundle) {
    Bundle<float> const b = work.bounds[bundle];
    if (!p.exact) return b.known > 0 ? ALL_LISTS<CAMERA> : 0;
    Seen<float> const s = work.seen[gaussian];
    Facing<float> const f = facing<!CAMERA>(s, b);
    if (!(b.known > 0)) return 0;
    if (b.known > 1) return ALL_LISTS<CAMERA>;
    if (!meets(f)) return 0;
    if (CAMERA) return ALL_LISTS<CAMERA>;
    uint32_t met = 0;
#pragma unroll
    for (int k = 0; k < FANS; ++k) {
        Fan<float> const fan = work.fans[FANS * bundle + k];
        if (meets(f, fan)) met |= 1u << (2 * k / FANS);
    }
    return met;
}

template <bool CAMERA>
__device__ Hit tested(BundleParams const& p, BundleWork const& work, Hit const& hit) {
    if (!hit.where) return {};
    uint32_t const lists = lists_met<CAMERA>(p, work, hit.gaussian, hit.bundle());
    if (!lists) return {};
    return {hit.gaussian, hit.bundle() << 2 | lists};
}

// A warp's words, each lane its own candidates of them. In shared memory, so that code does not grow with the words.
using Hits = Hit[WARP_WORDS][32];

template <bool CAMERA>
__device__ void keep_candidates(BundleParams const& p, BundleWork const& work, Search const& all, Words const& words,
                                Hits& hits) {
    Candidate found[WARP_WORDS];
    int bundles[WARP_WORDS];
    find_candidates<CAMERA>(p, work, all, words, found, bundles);
#pragma unroll
    for (int k = 0; k < WARP_WORDS; ++k) {
        uint32_t const where = bundles[k] == NONE ? 0 : uint32_t(bundles[k]) << 2 | ALL_LISTS<CAMERA>;
        hits[k][threadIdx.x % 32] = {uint32_t(p.index ? p.index[found[k].i] : found[k].i), where};
    }
}

// Of a word.
template <bool CAMERA>
__device__ int entries_of(Hit const& hit) {
    int const first = __popc(__ballot_sync(ALL_LANES, hit.has(0)));
    return CAMERA ? first : first + __popc(__ballot_sync(ALL_LANES, hit.has(1)));
}

// Writes those of a word from `at` on, as many as there is room for, and returns where the next word's begin.
template <bool CAMERA>
__device__ int64_t write_word(Hit const& hit, Written const& out, int64_t at, int64_t room) {
    constexpr int LISTS = CAMERA ? 1 : 2;
    unsigned const before = (1u << (threadIdx.x % 32)) - 1;
    int64_t mine = at;
#pragma unroll
    for (int k = 0; k < LISTS; ++k) {
        unsigned const lanes = __ballot_sync(ALL_LANES, hit.has(k));
        mine += __popc(lanes & before), at += __popc(lanes);
    }
#pragma unroll
    for (int k = 0; k < LISTS; ++k) {
        if (!hit.has(k)) continue;
        if (mine < room) out.tiles[mine] = LISTS * hit.bundle() + k, out.gaussians[mine] = hit.gaussian;
        ++mine;
    }
    return at;
}

__device__ uint64_t state_of(uint64_t const* state, uint64_t least) {
    uint64_t found;
    do found = *static_cast<uint64_t const volatile*>(state);
    while (found < least);
    return found;
}

// By one warp: hits of all tiles before this one, which has `mine`.
__device__ uint64_t hits_before(uint64_t* states, int64_t tile, uint64_t mine) {
    int const lane = int(threadIdx.x) % 32;
    auto volatile* const own = states + tile;
    if (lane == 0) *own = (tile ? OWN : ALL) | mine;
    uint64_t before = 0;
    for (int64_t last = tile - 1; last >= 0; last -= 32) {
        uint64_t const s = last >= lane ? state_of(states + last - lane, OWN) : ALL;
        unsigned const whole = __ballot_sync(ALL_LANES, s >= ALL);
        uint64_t sum = !whole || lane < __ffs(int(whole)) ? s & COUNT : 0;
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, step);
        before += sum;
        if (whole) break;
    }
    if (lane == 0 && tile) *own = ALL | (before + mine);
    return before;
}

// Behind the last tile.
__device__ void tell(BundleParams const& p, BundleWork const& work, Search const& all, int64_t tiles) {
    int64_t const found = tiles ? int64_t(state_of(all.states + tiles - 1, ALL) & COUNT) : 0;
    int64_t const candidates = work.begins[p.v];
    int64_t const enough = candidates > 32 * all.words ? (candidates + 31) / 32 * WORDS_SHARE : 0;
    *all.found = found, *all.needed = larger(found, enough);
}

// Entries in the order of their candidates, as many as there is room for.
template <bool CAMERA>
__global__ void find_kernel(BundleParams p, BundleWork work, Search all, Written out, int64_t room) {
    __shared__ unsigned tile_of_block, counts[WARPS];
    __shared__ uint64_t before;
    __shared__ Hits hits_of_block[WARPS];
    int const lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    Hits& hits = hits_of_block[warp];
    int64_t const end = candidates_in(p, work, all), tiles = (end + 32 * TILE_WORDS - 1) / (32 * TILE_WORDS);
    while (true) {
        if (threadIdx.x == 0) tile_of_block = atomicAdd(all.next, 1u);
        __syncthreads();
        int64_t const tile = tile_of_block;
        if (tile == tiles && threadIdx.x == 0) tell(p, work, all, tiles);
        if (tile >= tiles) return;
        Words const mine = words_from(TILE_WORDS * tile + WARP_WORDS * warp, end);
        if (mine.there > 0) keep_candidates<CAMERA>(p, work, all, mine, hits);
        unsigned own = 0;
#pragma unroll 1
        for (int k = 0; 32 * k < mine.there; ++k) {
            Hit const hit = tested<CAMERA>(p, work, hits[k][lane]);
            hits[k][lane] = hit, own += entries_of<CAMERA>(hit);
        }
        if (lane == 0) counts[warp] = own;
        __syncthreads();
        unsigned sum = 0, place = 0;
        for (int w = 0; w < WARPS; ++w) place += w < warp ? counts[w] : 0, sum += counts[w];
        if (warp == 0) {
            uint64_t const found = hits_before(all.states, tile, sum);
            if (lane == 0) before = found;
        }
        __syncthreads();
        int64_t at = int64_t(before) + place;
#pragma unroll 1
        for (int k = 0; 32 * k < mine.there; ++k) at = write_word<CAMERA>(hits[k][lane], out, at, room);
    }
}

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

}  // namespace

BundleWork bundle_work(BundleParams const& p, int64_t* begins, Queue const& queue) {
    auto const& memory = queue.memory;
    int64_t const bins = p.bundles.is_camera ? 0 : 2 * BINS * p.bundles.cells.bands;
    return {memory.array<Bundle<float>>(p.bundles.n),
            memory.array<Fan<float>>(p.bundles.is_camera ? 0 : FANS * p.bundles.n),
            memory.array<int>(bins),
            memory.array<Candidates>(p.v),
            memory.array<Seen<float>>(!p.exact  ? 0
                                      : p.index ? p.g.n
                                                : p.v),
            begins};
}

void number_candidates(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    auto* counts = queue.memory.array<int64_t>(p.v + 1);
    bound_bundles(p, work, queue);
    look_kernel<<<blocks_for(p.v + 1), THREADS, 0, queue.stream>>>(p, work, counts);
    if (p.exact && p.g.n) see_kernel<<<blocks_for(p.g.n), THREADS, 0, queue.stream>>>(p, work.seen);
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
