// SPDX-License-Identifier: Apache-2.0
// Radix sort with one sweep a digit (Adinets and Merrill 2022, Onesweep: a faster least significant digit radix sort),
// for the one to a few million pairs of a view. With so few pairs latency dominates, so tiles are short, each looks
// back at several tiles at once, and all passes share one launch that zeroes. Unlike CUB's sort, the number of pairs
// stays on the device, and the first pass drops unwanted pairs instead of sorting them to the end.
#include <algorithm>

#include "launch.cuh"
#include "sort.h"
#include "warp.cuh"

namespace nurec::cuda {
namespace {

constexpr int BITS = 8, DIGITS = 1 << BITS;  // of a pass
constexpr int WARPS = THREADS / 32, ITEMS = 16, TILE = THREADS * ITEMS;
static_assert(DIGITS == THREADS, "a thread has a digit");

struct Digits {
    int first, bits;  // the lowest bit

    __device__ uint32_t of(uint32_t key) const { return key >> first & ((1u << bits) - 1); }
};

// `bits` of a key from the lowest on, in passes of nearly equal ones.
struct Passes {
    int lowest, bits, n, each;

    __host__ __device__ Digits of(int pass) const {
        int const before = pass * each, left = bits - before;
        return {lowest + before, left < each ? left : each};
    }
};

Passes passes_of(int lowest, int bits) {
    int const n = std::max(1, (bits + BITS - 1) / BITS);
    return {lowest, bits, n, (bits + n - 1) / n};
}

int64_t tiles_for(int64_t pairs) {
    return (pairs + TILE - 1) / TILE;
}

int64_t zeros_for(Passes const& passes, int64_t pairs) {
    return passes.n * (DIGITS * (tiles_for(pairs) + 1) + 1);
}

// Keys are handed from pass to pass; the number of those that are left after the first is `kept`.
struct Pass {
    Pairs pairs;
    Digits digits;
    bool choose;             // leave out UNWANTED pairs: in the first pass
    uint32_t const* totals;  // [DIGITS] keys of each digit
    uint32_t* states;        // [tiles, DIGITS] zeros at first
    uint32_t* next;          // [1] zero at first: the next free tile
    int64_t* kept;           // [1]
};

// Keys to go through. LISTED: those of whole visible blocks.
template <bool LISTED>
__device__ uint32_t number_of(Pairs const& p) {
    if (LISTED) return uint32_t(BLOCK_GAUSSIANS * p.blocks.count(p.n));
    return uint32_t(p.there && *p.there < p.n ? *p.there : p.n);
}

// The i-th key; the last block may have fewer.
template <bool LISTED>
__device__ uint32_t key_of(Pairs const& p, uint32_t i) {
    constexpr auto EACH = uint32_t(BLOCK_GAUSSIANS);
    uint32_t const place = LISTED ? uint32_t(p.blocks.first(i / EACH)) + i % EACH : i;
    return !LISTED || place < p.n ? p.keys[place] : UNWANTED;
}

// --- how many keys have each digit of each pass ---

constexpr int MAX_PASSES = 4, COPIES = 4,
              BATCH = 4;  // lanes of a warp often have the same high digits: they share a copy

template <bool LISTED>
__global__ void count_digits_kernel(Pairs p, bool choose, Passes passes, uint32_t* totals) {
    wait_then_launch_dependents();
    __shared__ uint32_t counts[COPIES][MAX_PASSES][DIGITS];
    uint32_t* const all = counts[0][0];
    for (int k = int(threadIdx.x); k < COPIES * MAX_PASSES * DIGITS; k += THREADS) all[k] = 0;
    __syncthreads();
    uint32_t const n = number_of<LISTED>(p), step = gridDim.x * THREADS;
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += BATCH * step) {
        uint32_t keys[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; ++k) keys[k] = i + k * step < n ? key_of<LISTED>(p, i + k * step) : UNWANTED;
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            if (i + k * step >= n || (choose && keys[k] == UNWANTED)) continue;
            for (int pass = 0; pass < passes.n; ++pass)
                atomicAdd(&counts[threadIdx.x % COPIES][pass][passes.of(pass).of(keys[k])], 1u);
        }
    }
    __syncthreads();
    for (int k = int(threadIdx.x); k < passes.n * DIGITS; k += THREADS) {
        uint32_t sum = 0;
        for (int copy = 0; copy < COPIES; ++copy) sum += all[copy * MAX_PASSES * DIGITS + k];
        if (sum) atomicAdd(totals + k, sum);
    }
}

// --- a pass ---

struct Shared {
    uint32_t tile;
    uint16_t counts[WARPS][DIGITS];  // of a warp's keys; then of those in the warps before it
    uint32_t begins[DIGITS];         // where the tile's keys of a digit begin within the tile
    uint32_t moves[DIGITS];          // from there to where they go
    uint64_t sums[WARPS];
    uint32_t keys[TILE], values[TILE];
};

// First key of this lane. A warp has a run of ITEMS rows of 32 of a tile.
__device__ uint32_t first_of(uint32_t tile) {
    return TILE * tile + 32 * ITEMS * (threadIdx.x / 32) + threadIdx.x % 32;
}

// The lanes with this lane's digit, of those that `take` part.
__device__ unsigned lanes_alike(uint32_t digit, bool take) {
    unsigned same = __ballot_sync(ALL_LANES, take);
#pragma unroll
    for (int bit = 0; bit < BITS; ++bit) {
        unsigned const ones = __ballot_sync(ALL_LANES, digit >> bit & 1);
        same &= digit >> bit & 1 ? ones : ~ones;
    }
    return same;
}

// For each of the lane's keys, the number of the warp's earlier keys with the same digit.
__device__ void rank_keys(Digits const& digits, uint32_t const (&keys)[ITEMS], unsigned taken, uint16_t* counts,
                          uint32_t (&ranks)[ITEMS]) {
    unsigned const lower = (1u << (threadIdx.x % 32)) - 1;
    unsigned same[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) same[k] = lanes_alike(digits.of(keys[k]), taken >> k & 1);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        uint32_t const digit = digits.of(keys[k]), before = counts[digit];
        ranks[k] = before + __popc(same[k] & lower);
        __syncwarp();
        if (taken >> k & 1 && !(same[k] & lower)) counts[digit] = uint16_t(before + __popc(same[k]));
        __syncwarp();
    }
}

// Number of the tile's keys with the thread's digit; counts of warps become those of the warps before them.
__device__ uint32_t add_warps(Shared& s) {
    uint32_t sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        uint32_t const mine = s.counts[w][threadIdx.x];
        s.counts[w][threadIdx.x] = uint16_t(sum);
        sum += mine;
    }
    return sum;
}

// A state is 0, then AGGREGATE with the tile's keys of the digit, then PREFIX with those of all tiles up to it. Blocks
// spin on the states of earlier tiles; that cannot deadlock, because tiles are taken in ascending order
// (look_back.cuh).
constexpr uint32_t AGGREGATE = 1u << 30, PREFIX = 2u << 30, COUNT_MASK = AGGREGATE - 1;
constexpr int AHEAD = 4;  // tiles that are looked at together

__device__ uint32_t read_state(uint32_t const* states, int tile) {
    return tile < 0 ? PREFIX : static_cast<uint32_t const volatile*>(states)[DIGITS * tile + threadIdx.x];
}

// Publishes a state for waiting blocks.
__device__ void tell(uint32_t* states, int tile, uint32_t state) {
    static_cast<uint32_t volatile*>(states)[DIGITS * tile + threadIdx.x] = state;
}

// Keys of the thread's digit in all tiles before this one, which has `mine`.
__device__ uint32_t keys_before(uint32_t* states, int tile, uint32_t mine) {
    uint32_t before = 0;
    bool found = tile == 0;
    for (int last = tile - 1; !found; last -= AHEAD) {
        uint32_t seen[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) seen[k] = read_state(states, last - k);
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            if (found) continue;
            while (seen[k] < AGGREGATE) seen[k] = read_state(states, last - k);
            before += seen[k] & COUNT_MASK;
            found = seen[k] >= PREFIX;
        }
    }
    if (tile) tell(states, tile, PREFIX | (before + mine));
    return before;
}

// Places of a lane's keys, from number `first` on: a warp has a run of visible blocks.
template <bool LISTED>
struct Run {
    static constexpr int EACH = int(BLOCK_GAUSSIANS) / 32, BLOCKS = ITEMS / EACH;  // rows of a block, blocks of a run
    static_assert(ITEMS % EACH == 0);
    uint32_t begin[LISTED ? BLOCKS : 1];

    __device__ Run(Pairs const& p, uint32_t first, uint32_t n) {
        begin[0] = first;
        if constexpr (LISTED)
            for (uint32_t b = 0; b < BLOCKS; ++b) {
                uint32_t const i = first + 32 * EACH * b;
                begin[b] = i < n ? uint32_t(p.blocks.first(i / (32 * EACH))) + i % (32 * EACH) : uint32_t(p.n);
            }
    }

    __device__ uint32_t at(int k) const { return LISTED ? begin[k / EACH] + 32 * (k % EACH) : begin[0] + 32 * k; }
};

// Which of the lane's keys are there, and wanted, as bits. `end`: the first place without a key.
template <bool LISTED>
__device__ unsigned load_keys(Pass const& p, Run<LISTED> const& run, uint32_t end, uint32_t (&keys)[ITEMS]) {
    unsigned taken = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        bool const there = run.at(k) < end;
        keys[k] = there ? p.pairs.keys[run.at(k)] : 0;
        taken |= unsigned(there && !(p.choose && keys[k] == UNWANTED)) << k;
    }
    return taken;
}

template <bool LISTED>
__device__ void load_values(Pass const& p, Run<LISTED> const& run, unsigned taken, uint32_t (&values)[ITEMS]) {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
        values[k] = LISTED || !p.pairs.values ? run.at(k) : taken >> k & 1 ? p.pairs.values[run.at(k)] : 0;
}

__device__ void write_sorted(Pass const& p, Shared const& s, uint32_t n) {
    for (uint32_t j = threadIdx.x; j < n; j += THREADS) {
        uint32_t const key = s.keys[j], at = s.moves[p.digits.of(key)] + j;
        if (p.pairs.sorted_keys) p.pairs.sorted_keys[at] = key;
        if (p.pairs.sorted)
            p.pairs.sorted[at] = s.values[j];
        else
            p.pairs.wide[at] = s.values[j];
    }
}

// Writes the tile's keys to their places, once the counts of each digit in the tiles before are known. The keys are
// put in order within the tile first, so that neighbours are written together.
__device__ void place_keys(Pass const& p, Shared& s, unsigned taken, uint32_t const (&keys)[ITEMS],
                           uint32_t const (&values)[ITEMS], uint32_t const (&ranks)[ITEMS]) {
    int const warp = int(threadIdx.x) / 32;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        uint32_t const digit = p.digits.of(keys[k]), at = s.begins[digit] + s.counts[warp][digit] + ranks[k];
        if (taken >> k & 1) s.keys[at] = keys[k], s.values[at] = values[k];
    }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr bool EARLY_VALUES = false;  // they would spill there
#else
constexpr bool EARLY_VALUES = true;  // on their way while keys are ranked
#endif

// It cannot deadlock: tiles are handed out in order, and a block with a tile is running, so a block that waits for
// earlier tiles waits for running blocks.
template <bool LISTED>
__global__ void __launch_bounds__(THREADS, 2) sort_digit_kernel(Pass p) {
    wait_then_launch_dependents();
    __shared__ Shared s;
    uint32_t const n = number_of<LISTED>(p.pairs);
    if (blockIdx.x && TILE * blockIdx.x >= n) return;  // as many are left as there are tiles
    if (threadIdx.x == 0) s.tile = atomicAdd(p.next, 1u);
    for (int k = int(threadIdx.x) % 32; k < DIGITS; k += 32) s.counts[threadIdx.x / 32][k] = 0;
    uint32_t const total = p.totals[threadIdx.x];
    __syncthreads();
    uint32_t const tile = s.tile;
    uint32_t keys[ITEMS], values[ITEMS], ranks[ITEMS];
    Run<LISTED> const run(p.pairs, first_of(tile), n);
    unsigned const taken = load_keys(p, run, LISTED ? uint32_t(p.pairs.n) : n, keys);
    if (EARLY_VALUES) load_values(p, run, taken, values);
    rank_keys(p.digits, keys, taken, s.counts[threadIdx.x / 32], ranks);
    if (!EARLY_VALUES) load_values(p, run, taken, values);
    __syncthreads();
    uint32_t const mine = add_warps(s);
    tell(p.states, int(tile), (tile ? AGGREGATE : PREFIX) | mine);
    Sums const sums = sums_before(uint64_t(total) << 32 | mine, s.sums);
    auto const begin = uint32_t(sums.before);
    s.begins[threadIdx.x] = begin;
    __syncthreads();
    place_keys(p, s, taken, keys, values, ranks);
    s.moves[threadIdx.x] = uint32_t(sums.before >> 32) + keys_before(p.states, int(tile), mine) - begin;
    if (tile == 0 && threadIdx.x == 0) *p.kept = int64_t(sums.all >> 32);
    __syncthreads();
    write_sorted(p, s, uint32_t(sums.all));
}

}  // namespace

int64_t words_to_sort(int64_t pairs, int bits) {
    return (zeros_for(passes_of(0, bits), pairs) + 1) / 2;
}

void sort_pairs(Pairs const& p, int bits, Queue const& queue) {
    Zeros none = {};
    sort_pairs(p, bits, none, queue);
}

void sort_pairs(Pairs const& p, int bits, Zeros& zeros, Queue const& queue) {
    auto const& memory = queue.memory;
    if (p.n == 0) {
        if (p.kept) cudaMemsetAsync(p.kept, 0, sizeof(int64_t), queue.stream);
        return;
    }
    Passes const passes = passes_of(p.lowest, bits);
    int64_t const tiles = tiles_for(p.n), n_zeros = zeros_for(passes, p.n);
    auto* const totals = take<uint32_t>(zeros, n_zeros, queue);
    uint32_t *const states = totals + passes.n * DIGITS, *const next = states + passes.n * DIGITS * tiles;
    auto const array = [&] { return passes.n > 1 ? memory.array<uint32_t>(p.n) : nullptr; };
    uint32_t *const keys[] = {array(), array()}, *const values[] = {array(), array()};
    auto const blocks = unsigned(std::min<int64_t>(blocks_for(p.n), 2 * multiprocessors()));
    auto* const count = p.blocks.listed ? count_digits_kernel<true> : count_digits_kernel<false>;
    launch_pdl(count, blocks, THREADS, queue, p, p.kept, passes, totals);
    Pass pass = {p, {}, p.kept != nullptr, totals, states, next, p.kept ? p.kept : memory.array<int64_t>(1)};
    for (int k = 0; k < passes.n; ++k) {
        bool const last = k + 1 == passes.n;
        pass.digits = passes.of(k);
        pass.pairs.sorted_keys = last ? p.sorted_keys : keys[k % 2];
        pass.pairs.sorted = last ? p.sorted : values[k % 2];
        auto* const sort = pass.pairs.blocks.listed ? sort_digit_kernel<true> : sort_digit_kernel<false>;
        launch_pdl(sort, unsigned(tiles), THREADS, queue, pass);
        pass.pairs.keys = keys[k % 2], pass.pairs.values = values[k % 2], pass.pairs.there = pass.kept;
        pass.choose = false, pass.pairs.blocks = {nullptr};
        pass.totals += DIGITS, pass.states += DIGITS * tiles, ++pass.next;
    }
}

}  // namespace nurec::cuda
