// SPDX-License-Identifier: Apache-2.0
// A block first asks which of its Gaussians have something to do, a thread each, and leaves in shared memory what their
// coefficients need: the basis in the direction of their gradient and that in the direction of the eye. Then 16 lanes
// take a Gaussian, three coefficients each at degree 3: they read value and moments, go through the steps that it has
// missed in registers, write, and add up the colour.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "../common/warp.cuh"
#include "../math/sh.cuh"
#include "params.h"

namespace nurec::cuda {
namespace {

constexpr int GAUSSIANS = 128;  // of a block
constexpr int LANES = 16;       // of a Gaussian

template <int S>
struct Bases {
    static constexpr int STRIDE = (2 * S + 3) | 1;  // odd: no two threads write to one bank
    float numbers[GAUSSIANS * STRIDE];              // basis of the gradient, the colour's gradient, basis of the eye
    int missed[GAUSSIANS];                          // steps
    bool seen[GAUSSIANS];
    int busy[GAUSSIANS], n;  // rows with something to do, in any order
};

template <int S>
__device__ void keep_basis(Vec3<float> direction, float* to) {
    float basis[S];
    sh_basis(direction, basis);
#pragma unroll
    for (int k = 0; k < S; ++k) to[k] = basis[k];
}

// Row `threadIdx.x` is Gaussian i, which takes what it has missed from `steps` with it.
template <int S, bool LOOKS>
__device__ void ask(Bases<S>& all, Placements const& in, bool seen, bool due, LazySteps const& steps, int count,
                    int64_t i) {
    int const row = int(threadIdx.x), missed = seen || due ? count - steps.taken[i] : 0;
    all.missed[row] = missed, all.seen[row] = seen;
    if (!seen && missed <= 0) return;
    float* const to = all.numbers + Bases<S>::STRIDE * row;
    if (missed > 0) {
        keep_basis<S>(load3(steps.directions, i), to);
        store3(to + S, 0, load3(steps.colours, i)), store3(steps.colours, i, {0, 0, 0});
        steps.taken[i] = count;
    }
    if constexpr (LOOKS)
        if (seen) keep_basis<S>(direction_of(sight_of(in, i)), to + S + 3);
    all.busy[atomicAdd(&all.n, 1)] = row;
}

// Lane l of a Gaussian has its numbers l, l + 16 and l + 32 of 3 S, as far as there are so many. They are of channels l,
// l + 1 and l + 2, modulo 3.
template <int S>
struct Own {
    static constexpr int COUNT = (3 * S + LANES - 1) / LANES;
    AdamValue<float> numbers[COUNT];

    static __device__ bool has(int lane, int k) { return lane + LANES * k < 3 * S; }
    static __device__ bool of_first(int lane, int k) { return k == 0 && lane < 3; }
    static __device__ Moving const& array(LazyHarmonics const& sh, int lane, int k) {
        return of_first(lane, k) ? sh.sh : sh.rest;
    }
    static __device__ int64_t place(int64_t i, int lane, int k) {
        return of_first(lane, k) ? 3 * i + lane : (3 * S - 3) * i + lane + LANES * k - 3;
    }

    // Moments only where they are asked for.
    __device__ void read(LazyHarmonics const& sh, int64_t i, int lane, bool moments) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            numbers[k] = {0, 0, 0};
            if (!has(lane, k)) continue;
            Moving const& from = array(sh, lane, k);
            int64_t const at = place(i, lane, k);
            numbers[k].value = from.value[at];
            if (moments) numbers[k].first = from.first[at], numbers[k].second = from.second[at];
        }
    }

    __device__ void write(LazyHarmonics const& sh, int64_t i, int lane) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            if (!has(lane, k)) continue;
            Moving const& to = array(sh, lane, k);
            int64_t const at = place(i, lane, k);
            to.value[at] = numbers[k].value, to.first[at] = numbers[k].first, to.second[at] = numbers[k].second;
        }
    }

    // The steps from `count` - `missed` on, of which only the first has a gradient, that of `basis` and `colour`.
    __device__ void catch_up(float const* basis, float const* colour, LazySteps const& steps, int count, int missed,
                             int lane) {
        float gradient[COUNT];
        bool moves = false;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            int const c = has(lane, k) ? lane + LANES * k : 0;
            gradient[k] = has(lane, k) ? basis[c / 3] * colour[c % 3] : 0.f;
            moves = moves || gradient[k] != 0 || numbers[k].first != 0 || numbers[k].second != 0;
        }
        if (!moves) return;  // nobody has seen it yet
        for (int t = count - missed + 1; t <= count; ++t) {
            StepFactors const by = steps.factors[t % RING];
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                numbers[k] = adam_step(numbers[k], gradient[k], steps.betas, of_first(lane, k) ? by.sh : by.rest);
                gradient[k] = 0;
            }
        }
    }

    // What the lane's numbers add to the colour.
    __device__ Vec3<float> share(float const* basis, int lane) const {
        float sums[3] = {0, 0, 0};
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (has(lane, k)) sums[k] = basis[(lane + LANES * k) / 3] * numbers[k].value;
        switch (lane % 3) {
            case 0:
                return {sums[0], sums[1], sums[2]};
            case 1:
                return {sums[2], sums[0], sums[1]};
            default:
                return {sums[1], sums[2], sums[0]};
        }
    }
};

__device__ float colour_of(float share) {
    float const sum = 0.5f + warp_sum<LANES>(share);
    return sum < 0 ? 0.f : sum;
}

// Busy rows, two a warp.
template <int S, bool LOOKS>
__device__ void work(Bases<S> const& all, LazyHarmonics const& sh, LazySteps const& steps, int count, float* colour) {
    int const lane = int(threadIdx.x % LANES), group = int(threadIdx.x / LANES);
    for (int first = 0; first < all.n; first += THREADS / LANES) {
        bool const has = first + group < all.n;
        int const row = all.busy[has ? first + group : first], missed = all.missed[row];
        int64_t const i = blockIdx.x * int64_t(GAUSSIANS) + row;
        float const* const from = all.numbers + Bases<S>::STRIDE * row;
        Own<S> own;
        own.read(sh, i, lane, has && missed > 0);
        if (has && missed > 0) {
            own.catch_up(from, from + S, steps, count, missed, lane);
            own.write(sh, i, lane);
        }
        if constexpr (!LOOKS) continue;
        Vec3<float> const share = own.share(from + S + 3, lane);
        Vec3<float> const found = {colour_of(share.x), colour_of(share.y), colour_of(share.z)};
        if (has && lane == 0 && all.seen[row]) store3(colour, i, found);
    }
}

template <int S, bool LOOKS>
__global__ void __launch_bounds__(THREADS)
    lazy_colour_kernel(Placements in, uint8_t const* seen, LazyHarmonics sh, LazySteps steps, float* colour) {
    __shared__ Bases<S> all;
    int const count = int(*steps.steps[0]);
    int64_t const i = blockIdx.x * int64_t(GAUSSIANS) + threadIdx.x;
    if (threadIdx.x == 0) all.n = 0;
    __syncthreads();
    if (threadIdx.x < GAUSSIANS && i < sh.n) {
        bool const looked_at = LOOKS && (!seen || seen[i]);
        ask<S, LOOKS>(all, in, looked_at, !LOOKS || int(blockIdx.x % ROUND) == count % ROUND, steps, count, i);
        if (LOOKS && !looked_at) store3(colour, i, {0, 0, 0});
    }
    __syncthreads();
    work<S, LOOKS>(all, sh, steps, count, colour);
}

template <int S>
void launch(Placements const& in, uint8_t const* seen, LazyHarmonics const& sh, LazySteps const& steps, float* colour,
            Queue const& queue) {
    unsigned const blocks = unsigned((sh.n + GAUSSIANS - 1) / GAUSSIANS);
    if (colour)
        lazy_colour_kernel<S, true><<<blocks, THREADS, 0, queue.stream>>>(in, seen, sh, steps, colour);
    else
        lazy_colour_kernel<S, false><<<blocks, THREADS, 0, queue.stream>>>(in, seen, sh, steps, colour);
}

__global__ void end_lazy_step_kernel(int64_t n, LazySteps steps, float const* rate_sh, float const* rate_rest,
                                     float const* failed, double first, double second) {
    int64_t const thread = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    if (!failed || *failed == 0) {
        if (thread > 0) return;
        float const t = *steps.steps[0] + 1, of_rest = *steps.steps[1] + 1;
        steps.factors[int(t) % RING] = {adam_factors<float>(*rate_sh, t, first, second),
                                        adam_factors<float>(*rate_rest, of_rest, first, second)};
        *steps.steps[0] = t, *steps.steps[1] = of_rest;
        return;
    }
    int const count = int(*steps.steps[0]);
    for (int64_t i = thread; i < n; i += int64_t(THREADS) * gridDim.x)
        if (steps.taken[i] == count) store3(steps.colours, i, {0, 0, 0});
}

}  // namespace

void lazy_colour(Placements const& in, uint8_t const* seen, LazyHarmonics const& sh, LazySteps const& steps,
                 float* colour, Queue const& queue) {
    if (!sh.n) return;
    switch (sh.s) {
        case 1:
            return launch<1>(in, seen, sh, steps, colour, queue);
        case 4:
            return launch<4>(in, seen, sh, steps, colour, queue);
        case 9:
            return launch<9>(in, seen, sh, steps, colour, queue);
        default:
            return launch<16>(in, seen, sh, steps, colour, queue);
    }
}

void settle_harmonics(LazyHarmonics const& sh, LazySteps const& steps, Queue const& queue) {
    lazy_colour({}, nullptr, sh, steps, nullptr, queue);
}

void end_lazy_step(int64_t n, LazySteps const& steps, float const* const (&rates)[2], float const* failed, double first,
                   double second, Queue const& queue) {
    unsigned const blocks = failed ? unsigned(multiprocessors()) : 1;
    end_lazy_step_kernel<<<blocks, THREADS, 0, queue.stream>>>(n, steps, rates[0], rates[1], failed, first, second);
}

}  // namespace nurec::cuda
