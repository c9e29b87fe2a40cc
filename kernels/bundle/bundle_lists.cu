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

constexpr int BLOCKS = 2048;  // of warps that go through words

__global__ void look_kernel(BundleParams p, BundleWork work, int64_t* counts) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i > p.v) return;
    Candidates const c = i < p.v ? candidates_of(p, i) : Candidates{0, -1, 0, 0, 0, 0};
    int const n = count_of(p.bundles, work.bins, c);
    counts[i] = n;
    if (n != 0) work.candidates[i] = c;
    if (n == 0 || !p.exact) return;
    int64_t const k = p.index[i];
    Frame<float> const f = frame_of(p.g, k);
    work.seen[i] = seen_within(f, reach_of(p.g.opacities[k]));
}

__device__ int64_t words_of(BundleParams const& p, BundleWork const& work, Hits const& hits) {
    int64_t const words = (work.begins[p.v] + 31) / 32;
    return words < hits.words ? words : hits.words;
}

// A warp says together what each of its Gaussians owns: one may own all words.
__global__ void own_kernel(BundleParams p, BundleWork work, Hits hits) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    int64_t const mine = i < p.v ? work.begins[i] : 0, mine_end = i < p.v ? work.begins[i + 1] : 0;
    for (unsigned left = __ballot_sync(ALL_LANES, (mine + 31) / 32 * 32 < mine_end); left; left &= left - 1) {
        int const lane = __ffs(int(left)) - 1;
        int64_t const begin = __shfl_sync(ALL_LANES, mine, lane), end = __shfl_sync(ALL_LANES, mine_end, lane);
        int64_t word = (begin + 31) / 32 + threadIdx.x % 32;
        for (; 32 * word < end && word < hits.words; word += 32)
            hits.owners[word] = uint32_t(i - threadIdx.x % 32 + lane);
    }
}

struct Candidate {
    int64_t i;  // a Gaussian
    int bundle;
};

// Of those that own this word and the next, or lie between them, the last Gaussian that begins at the number or before.
__device__ Candidate candidate_at(BundleParams const& p, BundleWork const& work, Hits const& hits, int64_t words,
                                  int64_t number) {
    int64_t const word = number / 32;
    int64_t low = hits.owners[word], high = word + 1 < words ? int64_t(hits.owners[word + 1]) : p.v - 1;
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

// Calls visit(word, words, number) by warps: one lane a candidate.
template <class Visit>
__device__ void for_words(BundleParams const& p, BundleWork const& work, Hits const& hits, Visit const& visit) {
    int64_t const words = words_of(p, work, hits), warps = int64_t(gridDim.x) * blockDim.x / 32;
    int64_t const first = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32;
    for (int64_t word = first; word < words; word += warps) visit(word, words, 32 * word + threadIdx.x % 32);
}

__global__ void test_kernel(BundleParams p, BundleWork work, Hits hits) {
    int64_t const all = work.begins[p.v];
    for_words(p, work, hits, [&](int64_t word, int64_t words, int64_t number) {
        bool const hit = number < all && may_meet(p, work, candidate_at(p, work, hits, words, number));
        unsigned const bits = __ballot_sync(ALL_LANES, hit);
        if (threadIdx.x % 32 == 0) hits.bits[word] = bits;
    });
}

__global__ void need_kernel(BundleParams p, BundleWork work, Hits hits, int64_t* needed) {
    int64_t const listed = hits.places[hits.words], all = work.begins[p.v];
    int64_t const enough = all > 32 * hits.words ? (all + 31) / 32 * WORDS_SHARE : 0;
    needed[0] = larger(listed, enough);
}

__global__ void emit_hits_kernel(BundleParams p, BundleWork work, Hits hits, Written out, int64_t room) {
    for_words(p, work, hits, [&](int64_t word, int64_t words, int64_t number) {
        int const lane = int(threadIdx.x) % 32;
        unsigned const bits = hits.bits[word];
        int64_t const place = int64_t(hits.places[word]) + __popc(bits & ((1u << lane) - 1));
        if (!(bits >> lane & 1) || place >= room) return;
        Candidate const c = candidate_at(p, work, hits, words, number);
        out.tiles[place] = uint32_t(c.bundle), out.gaussians[place] = uint32_t(p.index ? p.index[c.i] : c.i);
    });
    // behind the last entry, as `unwritten` would leave it
    int64_t const mine = blockIdx.x * int64_t(blockDim.x) + threadIdx.x, all = int64_t(gridDim.x) * blockDim.x;
    for (int64_t place = hits.places[hits.words] + mine; place < room; place += all)
        out.tiles[place] = ~uint32_t(0), out.gaussians[place] = 0;
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

Hits find_hits(BundleParams const& p, BundleWork const& work, int64_t words, int64_t* needed, Queue const& queue) {
    auto const& memory = queue.memory;
    Hits const hits = {words, memory.array<uint32_t>(words), zeros<uint32_t>(words + 1, queue),
                       memory.array<uint32_t>(words + 1)};
    if (p.v) own_kernel<<<blocks_for(p.v), THREADS, 0, queue.stream>>>(p, work, hits);
    test_kernel<<<BLOCKS, THREADS, 0, queue.stream>>>(p, work, hits);
    exclusive_sum_of_bits(hits.bits, hits.places, words + 1, queue);
    need_kernel<<<1, 1, 0, queue.stream>>>(p, work, hits, needed);
    return hits;
}

void list_hits(BundleParams const& p, BundleWork const& work, Hits const& hits, Entries const& out,
               Queue const& queue) {
    Written const written = {queue.memory.array<uint32_t>(out.room), queue.memory.array<uint32_t>(out.room)};
    emit_hits_kernel<<<BLOCKS, THREADS, 0, queue.stream>>>(p, work, hits, written, out.room);
    sort_into_lists(written, p.bundles.n, out, queue);
}

}  // namespace nurec::cuda
