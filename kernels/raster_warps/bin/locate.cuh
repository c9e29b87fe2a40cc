// SPDX-License-Identifier: Apache-2.0
// Locates candidates by their numbers: the Gaussian, and on a lidar the warp tile, for the batches of a warp, one
// candidate of each batch a lane. Each step handles all batches before the next step, so that their loads overlap.
#pragma once

#include "../../common/warp.cuh"
#include "../../project/candidates.cuh"

namespace nurec::cuda {

constexpr int WARP_BATCHES = 4;  // one after another

struct Candidate {
    uint32_t i;  // a Gaussian
    int k;       // which of its candidates
};

// The batches of a warp. Places count from the first candidate of the first batch.
struct CandidateBatches {
    int64_t first;
    int there;  // candidates, 32 * WARP_BATCHES at most
    __device__ int64_t begin() const { return 32 * first; }
    __device__ int last() const { return (there - 1) / 32; }
};

__device__ inline CandidateBatches batches_from(int64_t first,
                                                int64_t end) {  // which all candidates that have batches lie before
    return {first, int(smaller(end - 32 * first, int64_t(32 * WARP_BATCHES)))};
}

// The Gaussians of a batch, from the owner of its first candidate to the last one that may have candidates.
struct BatchGaussians {
    uint32_t first, last;
    int begin;  // the place where Gaussian first + 1 + lane begins, or one beyond all batches
};

// Lane k returns the place where the first Gaussian of batch k begins, 32 k or before. Missing batches repeat the last
// one.
__device__ inline int load_batch_gaussians(BinParams const& p, BinWork const& work, CandidateBatches const& batches,
                                           BatchGaussians (&batch_first_gaussian)[WARP_BATCHES]) {
    int const lane = int(threadIdx.x) % 32;
    int64_t const batch =
        batches.first + smaller(lane % WARP_BATCHES, batches.last()) + lane / WARP_BATCHES % 2;  // or the next
    bool const owned = batch < work.batches && 32 * batch < work.begins[p.v];
    uint32_t const owner =
        owned ? work.batch_first_gaussian[batch] : uint32_t(larger<int64_t>(end_of_visible(p), 1) - 1);
    int const begin = int(work.begins[owner] - batches.begin());
#pragma unroll
    for (int k = 0; k < WARP_BATCHES; ++k) {
        uint32_t const first = __shfl_sync(ALL_LANES, owner, k), last = __shfl_sync(ALL_LANES, owner, WARP_BATCHES + k);
        uint32_t const i = first + 1 + uint32_t(lane);
        int64_t const far = 32 * WARP_BATCHES, place = i <= last ? work.begins[i] - batches.begin() : far;
        batch_first_gaussian[k] = {first, last, int(smaller(place, far))};
    }
    return begin;
}

// Returns how many lanes have a number of `most` or less. Numbers ascend with the lanes; bisection by shuffles.
__device__ inline int lanes_up_to(int most, int number) {
    int n = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        if (__shfl_sync(ALL_LANES, number, n + step - 1) <= most) n += step;
    return n + (__shfl_sync(ALL_LANES, number, n) <= most);
}

// Returns the last Gaussian that begins at `number` or before, by bisection in memory: for batches of many Gaussians.
__device__ inline Candidate find_candidate_in_memory(BinWork const& work, int64_t low, int64_t high, int64_t number) {
    while (low < high) {
        int64_t const middle = (low + high + 1) / 2;
        if (work.begins[middle] <= number)
            low = middle;
        else
            high = middle - 1;
    }
    return {uint32_t(low), int(number - work.begins[low])};
}

// If several Gaussians begin at the same place, only the last has candidates.
__device__ inline void gaussians_of(BinWork const& work, CandidateBatches const& batches,
                                    BatchGaussians const (&batch_first_gaussian)[WARP_BATCHES], int begins,
                                    Candidate (&found)[WARP_BATCHES]) {
    int const lane = int(threadIdx.x) % 32;
    bool far[WARP_BATCHES];
#pragma unroll
    for (int k = 0; k < WARP_BATCHES; ++k) {
        int const place = smaller(32 * smaller(k, batches.last()) + lane, batches.there - 1);
        int const n = lanes_up_to(place, batch_first_gaussian[k].begin), begin = __shfl_sync(ALL_LANES, begins, k);
        int const own = __shfl_sync(ALL_LANES, batch_first_gaussian[k].begin, n - 1);
        found[k] = {batch_first_gaussian[k].first + n, place - (n ? own : begin)};
        far[k] = n == 32 && found[k].i < batch_first_gaussian[k].last;
    }
#pragma unroll
    for (int k = 0; k < WARP_BATCHES; ++k) {
        int const place = smaller(32 * smaller(k, batches.last()) + lane, batches.there - 1);
        if (far[k])
            found[k] =
                find_candidate_in_memory(work, found[k].i, batch_first_gaussian[k].last, batches.begin() + place);
    }
}

__device__ inline uint32_t list_index(BinParams const& p, int64_t i) {
    return uint32_t(p.index ? p.index[i] : i);
}

// Finds the warp tiles of a lidar's candidates, and replaces each Gaussian by its list index.
__device__ inline void warp_tiles_of(BinParams const& p, BinWork const& work, Candidate (&found)[WARP_BATCHES],
                                     int (&warp_tiles)[WARP_BATCHES]) {
    constexpr int BATCHES_AT_ONCE = 2;  // with more there are fewer warps
#pragma unroll
    for (int k = 0; k < WARP_BATCHES; ++k) found[k].i = list_index(p, found[k].i);
#pragma unroll
    for (int first = 0; first < WARP_BATCHES; first += BATCHES_AT_ONCE) {
        Candidates c[BATCHES_AT_ONCE];
#pragma unroll
        for (int k = 0; k < BATCHES_AT_ONCE; ++k) c[k] = work.candidates[found[first + k].i];
#pragma unroll
        for (int k = 0; k < BATCHES_AT_ONCE; ++k)
            warp_tiles[first + k] = find_tile_fast(p.warp_tiles, c[k], found[first + k].k);
    }
#pragma unroll
    for (int k = 0; k < WARP_BATCHES; ++k)
        if (warp_tiles[k] == SEARCH_ROWS)
            warp_tiles[k] = find_tile_by_rows(p.warp_tiles, work.candidates[found[k].i], found[k].k);
}

// Locates each lane's candidates. Lanes without one repeat the last.
__device__ inline void locate_candidates(BinParams const& p, BinWork const& work, CandidateBatches const& batches,
                                         Candidate (&found)[WARP_BATCHES]) {
    BatchGaussians batch_first_gaussian[WARP_BATCHES];
    int const begins = load_batch_gaussians(p, work, batches, batch_first_gaussian);
    gaussians_of(work, batches, batch_first_gaussian, begins, found);
}

}  // namespace nurec::cuda
