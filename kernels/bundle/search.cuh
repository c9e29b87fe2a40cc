// SPDX-License-Identifier: Apache-2.0
// From numbers of candidates to Gaussians, and of a lidar to bundles, for the words of a warp, one candidate of each
// word a lane. A step is taken for all words before the next one, so that what is read for one does not wait for what
// is read for another.
#pragma once

#include "../common/warp.cuh"
#include "candidates.cuh"

namespace nurec::cuda {

constexpr int WARP_WORDS = 4;  // one after another

struct Candidate {
    uint32_t i;  // a Gaussian
    int k;       // which of its candidates
};

// The words of a warp. Places count from the first one's first candidate.
struct Words {
    int64_t first;
    int there;  // candidates, 32 * WARP_WORDS at most
    __device__ int64_t begin() const { return 32 * first; }
    __device__ int last() const { return (there - 1) / 32; }
};

__device__ inline Words words_from(int64_t first, int64_t end) {  // which all candidates that have words lie before
    return {first, int(smaller(end - 32 * first, int64_t(32 * WARP_WORDS)))};
}

// A word's Gaussians, from the one that has its first candidate to the last that may have one.
struct Owners {
    uint32_t first, last;
    int begin;  // the place where Gaussian first + 1 + lane begins, or one beyond all words
};

// Lane k returns the place where the first Gaussian of word k begins, 32 k or before. In place of words that there are
// not comes the last one.
__device__ inline int load_owners(BundleParams const& p, BundleWork const& work, Words const& words,
                                  Owners (&owners)[WARP_WORDS]) {
    int const lane = int(threadIdx.x) % 32;
    int64_t const word = words.first + smaller(lane % WARP_WORDS, words.last()) + lane / WARP_WORDS % 2;  // or the next
    bool const owned = word < work.words && 32 * word < work.begins[p.v];
    uint32_t const owner = owned ? work.owners[word] : uint32_t(p.v - 1);
    int const begin = int(work.begins[owner] - words.begin());
#pragma unroll
    for (int k = 0; k < WARP_WORDS; ++k) {
        uint32_t const first = __shfl_sync(ALL_LANES, owner, k), last = __shfl_sync(ALL_LANES, owner, WARP_WORDS + k);
        uint32_t const i = first + 1 + uint32_t(lane);
        int64_t const far = 32 * WARP_WORDS, place = i <= last ? work.begins[i] - words.begin() : far;
        owners[k] = {first, last, int(smaller(place, far))};
    }
    return begin;
}

// How many lanes' numbers, which grow from lane to lane, are `most` or less: by halves, without memory.
__device__ inline int lanes_up_to(int most, int number) {
    int n = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        if (__shfl_sync(ALL_LANES, number, n + step - 1) <= most) n += step;
    return n + (__shfl_sync(ALL_LANES, number, n) <= most);
}

// Where a word has more Gaussians than that: the last that begins at the number or before, in memory.
__device__ inline Candidate far_candidate(BundleWork const& work, int64_t low, int64_t high, int64_t number) {
    while (low < high) {
        int64_t const middle = (low + high + 1) / 2;
        if (work.begins[middle] <= number)
            low = middle;
        else
            high = middle - 1;
    }
    return {uint32_t(low), int(number - work.begins[low])};
}

// Where Gaussians begin at the same place, only the last has candidates.
__device__ inline void gaussians_of(BundleWork const& work, Words const& words, Owners const (&owners)[WARP_WORDS],
                                    int begins, Candidate (&found)[WARP_WORDS]) {
    int const lane = int(threadIdx.x) % 32;
    bool far[WARP_WORDS];
#pragma unroll
    for (int k = 0; k < WARP_WORDS; ++k) {
        int const place = smaller(32 * smaller(k, words.last()) + lane, words.there - 1);
        int const n = lanes_up_to(place, owners[k].begin), begin = __shfl_sync(ALL_LANES, begins, k);
        int const own = __shfl_sync(ALL_LANES, owners[k].begin, n - 1);
        found[k] = {owners[k].first + n, place - (n ? own : begin)};
        far[k] = n == 32 && found[k].i < owners[k].last;
    }
#pragma unroll
    for (int k = 0; k < WARP_WORDS; ++k) {
        int const place = smaller(32 * smaller(k, words.last()) + lane, words.there - 1);
        if (far[k]) found[k] = far_candidate(work, found[k].i, owners[k].last, words.begin() + place);
    }
}

__device__ inline uint32_t listed_as(BundleParams const& p, int64_t i) {
    return uint32_t(p.index ? p.index[i] : i);
}

// Of a lidar, whose Gaussians are called as they are listed from here on.
__device__ inline void bundles_of(BundleParams const& p, BundleWork const& work, Candidate (&found)[WARP_WORDS],
                                  int (&bundles)[WARP_WORDS]) {
    constexpr int AT_ONCE = 2;  // with more there are fewer warps
#pragma unroll
    for (int k = 0; k < WARP_WORDS; ++k) found[k].i = listed_as(p, found[k].i);
#pragma unroll
    for (int first = 0; first < WARP_WORDS; first += AT_ONCE) {
        Candidates c[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) c[k] = work.candidates[found[first + k].i];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) bundles[first + k] = near_bundle(p.bundles, c[k], found[first + k].k);
    }
#pragma unroll
    for (int k = 0; k < WARP_WORDS; ++k)
        if (bundles[k] == WALK) bundles[k] = far_bundle(p.bundles, work.candidates[found[k].i], found[k].k);
}

// Lanes without a candidate of their own look for the last there is.
__device__ inline void find_candidates(BundleParams const& p, BundleWork const& work, Words const& words,
                                       Candidate (&found)[WARP_WORDS]) {
    Owners owners[WARP_WORDS];
    int const begins = load_owners(p, work, words, owners);
    gaussians_of(work, words, owners, begins, found);
}

}  // namespace nurec::cuda
