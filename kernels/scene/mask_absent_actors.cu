// SPDX-License-Identifier: Apache-2.0
// A thread takes four Gaussians at one time. Nearly all of them are always there: those are copied, in vectors.
#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../math/actors.cuh"
#include "mask_absent_actors.h"

namespace nurec::cuda {
namespace {

constexpr int MAX_TIMES_PER_LAUNCH = 16;  // times of a launch
constexpr int ROWS_PER_THREAD = 4;        // a thread

struct Times {
    OpacitiesAt at[MAX_TIMES_PER_LAUNCH];
};

__device__ float seen(Presence const& in, int64_t i, double time, float opacity) {
    if (i < in.still) return opacity;
    int64_t const k = in.node[i];
    return present(in.first[k], in.last[k], time) * opacity;
}

// `i`: the first of the thread's Gaussians, which all exist.
__device__ void take_four(Presence const& in, OpacitiesAt const& at, int64_t i) {
    float4 v = *reinterpret_cast<float4 const*>(at.from + i);
    if (i + ROWS_PER_THREAD > in.still) {
        double const time = *at.time;
        v = {seen(in, i, time, v.x), seen(in, i + 1, time, v.y), seen(in, i + 2, time, v.z),
             seen(in, i + 3, time, v.w)};
    }
    *reinterpret_cast<float4*>(at.to + i) = v;
}

__global__ void __launch_bounds__(THREADS) mask_absent_actors_kernel(Presence in, Times times) {
    OpacitiesAt const& at = times.at[blockIdx.y];
    int64_t const i = ROWS_PER_THREAD * (blockIdx.x * int64_t(THREADS) + threadIdx.x);
    if (i + ROWS_PER_THREAD <= in.n && in_vectors(at.from) && in_vectors(at.to)) return take_four(in, at, i);
    for (int64_t k = i; k < i + ROWS_PER_THREAD && k < in.n; ++k) at.to[k] = seen(in, k, *at.time, at.from[k]);
}

}  // namespace

void mask_absent_actors(Presence const& in, OpacitiesAt const* at, int64_t n_times, Queue const& queue) {
    for (int64_t first = 0; in.n && first < n_times; first += MAX_TIMES_PER_LAUNCH) {
        int64_t const n = smaller<int64_t>(n_times - first, MAX_TIMES_PER_LAUNCH);
        Times times = {};
        for (int64_t q = 0; q < n; ++q) times.at[q] = at[first + q];
        dim3 const blocks(blocks_for((in.n + ROWS_PER_THREAD - 1) / ROWS_PER_THREAD), unsigned(n));
        mask_absent_actors_kernel<<<blocks, THREADS, 0, queue.stream>>>(in, times);
    }
}

}  // namespace nurec::cuda
