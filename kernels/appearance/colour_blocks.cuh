// SPDX-License-Identifier: Apache-2.0
// Reads of a block of Gaussians from harmonics, and its sums of rotations of nodes; Gaussians of a node are
// neighbours.
#pragma once

#include "../common/triples.cuh"
#include "../common/warp.cuh"
#include "sh_rows.cuh"

namespace nurec::cuda {

// Coefficients of a block's Gaussians, for the threads that want them.
template <int S>
struct WantedRows : Rows<S> {
    bool wanted[GAUSSIANS];

    // Those of the Gaussians from `begin` on.
    __device__ void read(Coefficients<float const> const& sh, int64_t begin, int64_t n, bool mine) {
        wanted[threadIdx.x] = mine;
        __syncthreads();
        Rows<S>::read(sh, begin, n, [&](int row) { return wanted[row]; });
        __syncthreads();
    }
};

// Nodes take turns, the next one being that of the first lane which still has something to give.
__device__ inline void add_to_rotations(float* rotations, int node, Quat<float> d) {
    int const lane = int(threadIdx.x) % 32, sum = summed_value<4>(lane);
    unsigned waiting = __ballot_sync(ALL_LANES, d.w != 0 || d.x != 0 || d.y != 0 || d.z != 0);
    while (waiting) {
        int const shared = __shfl_sync(ALL_LANES, node, __ffs(int(waiting)) - 1);
        bool const joins = node == shared;
        float values[4] = {joins ? d.w : 0.f, joins ? d.x : 0.f, joins ? d.y : 0.f, joins ? d.z : 0.f};
        float const total = sums_by_halves(values, lane);
        if (sum >= 0) atomicAdd(rotations + 4 * int64_t(shared) + sum, total);
        waiting &= ~__ballot_sync(ALL_LANES, joins);
    }
}

}  // namespace nurec::cuda
