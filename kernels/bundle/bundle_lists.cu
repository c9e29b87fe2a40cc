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

namespace nurec::cuda {
namespace {

constexpr int BLOCKS = 2048;  // that go through words

__global__ void look_kernel(BundleParams p, BundleWork work, int64_t* counts) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i > p.v) return;
    Candidates c = i < p.v ? candidates_of(p, i) : no_candidates();
    int const n = count_of(p.bundles, work.bins, c);
    counts[i] = n;
    if (n != 0) work.candidates[i] = c;
    if (n == 0 || !p.exact) return;
    int64_t const k = p.index[i];
    Frame<float> const f = frame_of(p.g, k);
    work.seen[i] = seen_within(f, reach_of(p.g.opacities[k]));
}

// Tiles of words are handed out in their order, and a block that has one is running: so whoever waits for those before
// its own waits for blocks that run. A tile's state is 0, then OWN with the hits of the tile, then ALL with those of
// all tiles up to it (decoupled look-back, Merrill and Garland 2016).
constexpr int WARP_WORDS = 4, WARPS = THREADS / 32, TILE_WORDS = WARPS * WARP_WORDS;
constexpr uint64_t OWN = uint64_t(1) << 62, ALL = uint64_t(2) << 62, COUNT = OWN - 1;

struct Search {
    int64_t words;            // W, enough for all candidates or not
    uint32_t* owners;         // [W] the Gaussian that has a word's first candidate
    uint64_t* states;         // [tiles] zeros at first
    unsigned int* next;       // [1] likewise: the tile that nobody has
    int64_t *found, *needed;  // [1] hits, and what `needed` of find_entries is
};

__device__ int64_t words_of(BundleParams const& p, BundleWork const& work, Search const& all) {
    int64_t const words = (work.begins[p.v] + 31) / 32;
    return words < all.words ? words : all.words;
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

struct Candidate {
    int64_t i;  // a Gaussian
    int bundle;
};

// Of those that own this word and the next, or lie between them, the last Gaussian that begins at the number or before.
__device__ Candidate candidate_at(BundleParams const& p, BundleWork const& work, Search const& all, int64_t words,
                                  int64_t number) {
    int64_t const word = number / 32;
    int64_t low = all.owners[word], high = word + 1 < words ? int64_t(all.owners[word + 1]) : p.v - 1;
    while (low < high) {
        int64_t const middle = (low + high + 1) / 2;
        if (work.begins[middle] <= number)
            low = middle;
        else
            high = middle - 1;
    }
    return {low, bundle_at(p.bundles, work.bins, work.candidates[low], int(number - work.begins[low]))};
}

__device__ bool may_meet(BundleParams const& p, BundleWork const& work, Candidate const& c) {
    Bundle<float> const b = work.bounds[c.bundle];
    if (!p.exact) return b.known > 0;
    Seen<float> const s = work.seen[c.i];
    return b.known > 0 && (b.known > 1 || meets(s, b));
}

constexpr uint32_t NONE = ~uint32_t(0);

struct Hit {
    uint32_t gaussian, bundle;  // NONE: no hit
};

// One lane a candidate.
__device__ Hit test_word(BundleParams const& p, BundleWork const& work, Search const& all, int64_t words,
                         int64_t word) {
    int64_t const number = 32 * word + threadIdx.x % 32;
    if (word >= words || number >= work.begins[p.v]) return {0, NONE};
    Candidate const c = candidate_at(p, work, all, words, number);
    if (!may_meet(p, work, c)) return {0, NONE};
    return {uint32_t(p.index ? p.index[c.i] : c.i), uint32_t(c.bundle)};
}

__device__ unsigned lanes_with(Hit const& hit) {
    return __ballot_sync(ALL_LANES, hit.bundle != NONE);
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
__global__ void find_kernel(BundleParams p, BundleWork work, Search all, Written out, int64_t room) {
    __shared__ unsigned tile_of_block, counts[WARPS];
    __shared__ uint64_t before;
    int const lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    int64_t const words = words_of(p, work, all), tiles = (words + TILE_WORDS - 1) / TILE_WORDS;
    while (true) {
        if (threadIdx.x == 0) tile_of_block = atomicAdd(all.next, 1u);
        __syncthreads();
        int64_t const tile = tile_of_block;
        if (tile == tiles && threadIdx.x == 0) tell(p, work, all, tiles);
        if (tile >= tiles) return;
        Hit hits[WARP_WORDS];
        unsigned own = 0;
#pragma unroll
        for (int k = 0; k < WARP_WORDS; ++k) {
            hits[k] = test_word(p, work, all, words, TILE_WORDS * tile + WARP_WORDS * warp + k);
            own += __popc(lanes_with(hits[k]));
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
#pragma unroll
        for (int k = 0; k < WARP_WORDS; ++k) {
            unsigned const bits = lanes_with(hits[k]);
            int64_t const mine = at + __popc(bits & ((1u << lane) - 1));
            if (hits[k].bundle != NONE && mine < room)
                out.tiles[mine] = hits[k].bundle, out.gaussians[mine] = hits[k].gaussian;
            at += __popc(bits);
        }
    }
}

// What is no entry is sorted behind the last.
__global__ void fill_rest_kernel(Written out, int64_t room, int64_t const* found) {
    int64_t const all = gridDim.x * int64_t(blockDim.x);
    int64_t place = *found + blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    for (; place < room; place += all) out.tiles[place] = NONE, out.gaussians[place] = 0;
}

void find(BundleParams const& p, BundleWork const& work, int64_t words, Written const& out, int64_t room,
          int64_t* needed, Queue const& queue) {
    auto const& memory = queue.memory;
    int64_t const tiles = (words + TILE_WORDS - 1) / TILE_WORDS;
    auto* const states = zeros<uint64_t>(tiles + 1, queue);  // the last is the next tile's number
    Search const all = {words,
                        memory.array<uint32_t>(words),
                        states,
                        reinterpret_cast<unsigned int*>(states + tiles),
                        memory.array<int64_t>(1),
                        needed};
    if (p.v) own_kernel<<<blocks_for(p.v), THREADS, 0, queue.stream>>>(p, work, all);
    find_kernel<<<BLOCKS, THREADS, 0, queue.stream>>>(p, work, all, out, room);
    if (room) fill_rest_kernel<<<BLOCKS, THREADS, 0, queue.stream>>>(out, room, all.found);
}

}  // namespace

BundleWork bundle_work(BundleParams const& p, int64_t* begins, Queue const& queue) {
    auto const& memory = queue.memory;
    int64_t const bins = p.bundles.is_camera ? 0 : 2 * BINS * p.bundles.cells.bands;
    return {memory.array<Bundle<float>>(p.bundles.n), memory.array<int>(bins), memory.array<Candidates>(p.v),
            memory.array<Seen<float>>(p.exact ? p.v : 0), begins};
}

void number_candidates(BundleParams const& p, BundleWork const& work, Queue const& queue) {
    auto* counts = queue.memory.array<int64_t>(p.v + 1);
    bound_bundles(p, work, queue);
    look_kernel<<<blocks_for(p.v + 1), THREADS, 0, queue.stream>>>(p, work, counts);
    exclusive_sum(counts, work.begins, p.v + 1, queue);
}

void count_entries(BundleParams const& p, BundleWork const& work, int64_t words, int64_t* needed, Queue const& queue) {
    find(p, work, words, {nullptr, nullptr}, 0, needed, queue);
}

void list_entries(BundleParams const& p, BundleWork const& work, int64_t words, Entries const& out, int64_t* needed,
                  Queue const& queue) {
    Written const written = {queue.memory.array<uint32_t>(out.room), queue.memory.array<uint32_t>(out.room)};
    find(p, work, words, written, out.room, needed, queue);
    sort_into_lists(written, p.bundles.n, out, queue);
}

}  // namespace nurec::cuda
