// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over the 32 lanes of a warp, of one value or of several at once, and sums over a block.
#pragma once

#include <cstdint>

namespace nurec::cuda {

constexpr unsigned ALL_LANES = ~0u;

// For every lane, over the warp or, with fewer LANES, over those of its own group of neighbours.
template <int LANES = 32>
__device__ float warp_sum(float a) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) a += __shfl_xor_sync(ALL_LANES, a, step);
    return a;
}

template <int LANES = 32>
__device__ float warp_max(float a) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) a = fmaxf(a, __shfl_xor_sync(ALL_LANES, a, step));
    return a;
}

// Largest of a number that is the same in all lanes of a group.
template <int LANES>
__device__ int max_over_groups(int a) {
#pragma unroll
    for (int step = LANES; step < 32; step *= 2) {
        int const other = __shfl_xor_sync(ALL_LANES, a, step);
        a = other > a ? other : a;
    }
    return a;
}

// Mask of the lanes of the own group whose `holds` is true; the group's first lane is the lowest bit.
template <int LANES>
__device__ unsigned ballot_of_group(bool holds) {
    unsigned const all = __ballot_sync(ALL_LANES, holds);
    return LANES == 32 ? all : all >> (threadIdx.x % 32 / LANES * LANES) & ((1u << LANES % 32) - 1);
}

// The bits of a warp's lanes the other way round: lane k returns the k-th bit of every lane.
__device__ inline uint32_t transposed(uint32_t bits) {
    uint32_t kept = 0x0000ffff;  // by lanes without the step's bit
#pragma unroll
    for (int step = 16; step > 0; step /= 2, kept ^= kept << step) {
        uint32_t const other = __shfl_xor_sync(ALL_LANES, bits, step);
        bool const upper = threadIdx.x & unsigned(step);
        bits = upper ? (bits & ~kept) | (other >> step & kept) : (bits & kept) | (other << step & ~kept);
    }
    return bits;
}

// Number of lanes with `mine` before this one, among all lanes of a block that call it.
__device__ inline int counted(bool mine, int* count) {
    int const lane = int(threadIdx.x) % 32;
    unsigned const all = __ballot_sync(ALL_LANES, mine);
    int const before = lane == 0 ? atomicAdd(count, __popc(all)) : 0;
    return __shfl_sync(ALL_LANES, before, 0) + __popc(all & ((1u << lane) - 1));
}

struct Sums {
    uint64_t before, all;
};

// Sums before each thread of a block of WARPS warps; all of them call it.
template <int WARPS>
__device__ Sums sums_before(uint64_t mine, uint64_t (&warps)[WARPS]) {
    int const lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    uint64_t sum = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        uint64_t const other = __shfl_up_sync(ALL_LANES, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    Sums found = {sum - mine, 0};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) found.before += w < warp ? warps[w] : 0, found.all += warps[w];
    return found;
}

// Sums N values by halves: lanes 16 apart swap half of their values and keep the sums of the other half, then lanes 8
// apart, and so on, until a lane holds one sum. That takes about N shuffles and a few, N = 16: 8 + 4 + 2 + 1 + 1, where
// one sum after the other takes 5 N. Lane l returns the sum of value `summed_value<N>(l)`; `values` are used up.
template <int N, int STEP = 16>
__device__ __forceinline__ float sums_by_halves(float (&values)[N], int lane) {
    constexpr int HALF = (N + 1) / 2;
    bool const upper = lane & STEP;
    float kept[HALF];
#pragma unroll
    for (int k = 0; k < HALF; ++k) {
        float const low = values[k], high = k + HALF < N ? values[k + HALF] : 0.f;
        kept[k] = (upper ? high : low) + __shfl_xor_sync(ALL_LANES, upper ? low : high, STEP);
    }
    if constexpr (STEP > 1)
        return sums_by_halves<HALF, STEP / 2>(kept, lane);
    else
        return kept[0];
}

// -1: lane l holds the sum of none.
template <int N, int STEP = 16>
__device__ __forceinline__ int summed_value(int lane) {
    constexpr int HALF = (N + 1) / 2;
    if constexpr (STEP == 0) {
        static_assert(N == 1, "more values than lanes");
        return 0;
    } else {
        bool const upper = lane & STEP;
        int const k = summed_value<HALF, STEP / 2>(lane);
        return k < 0 || (upper && k + HALF >= N) ? -1 : k + (upper ? HALF : 0);
    }
}

// Sums over a block of WARPS warps; all of them call it. Thread k returns the sum of value k, and zero for k >= N.
// `values` are used up; `of_warps` may serve call after call.
template <int N, int WARPS>
__device__ __forceinline__ float sums_of_block(float (&values)[N], float (&of_warps)[N][WARPS]) {
    int const lane = int(threadIdx.x) % 32, value = summed_value<N>(lane);
    float const sum = sums_by_halves(values, lane);
    __syncthreads();  // those of the call before have been read
    if (value >= 0) of_warps[value][threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0;
    if (threadIdx.x < N)
        for (float const one : of_warps[threadIdx.x]) total += one;
    return total;
}

}  // namespace nurec::cuda
