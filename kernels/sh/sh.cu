// SPDX-License-Identifier: Apache-2.0
// One thread a Gaussian. A block's coefficients go through shared memory, whole rows of 128 bytes at a time: threads
// that each read and wrote their own 192 bytes took five times as long.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "../math/sh.cuh"
#include "params.h"

namespace nurec::cuda {
namespace {

constexpr int GAUSSIANS = 128;  // of a block

template <int S>
struct Rows {
    static constexpr int LENGTH = 3 * S, STRIDE = LENGTH | 1;  // odd: no two threads read from one bank
    float numbers[GAUSSIANS * STRIDE];

    __device__ float* mine() { return numbers + STRIDE * threadIdx.x; }

    // Calls function(number, its place here) for the block's rows of one of the arrays, consecutive numbers by
    // consecutive threads: columns from `begin` on, COUNT of them.
    template <int COUNT, class T, class Function>
    __device__ void for_columns(T* numbers_of, int stride, int rows, int begin, Function const& function) {
        for (int k = int(threadIdx.x); k < COUNT * rows; k += GAUSSIANS) {
            int const row = k / COUNT, column = k % COUNT;
            function(numbers_of[stride * row + column], numbers[STRIDE * row + begin + column]);
        }
    }

    template <class T, class Function>
    __device__ void for_each(Coefficients<T> const& sh, int64_t n, Function const& function) {
        int64_t const first = blockIdx.x * int64_t(GAUSSIANS), left = n - first;
        int const rows = int(left < GAUSSIANS ? left : GAUSSIANS);
        for_columns<3>(sh.first + sh.first_stride * first, int(sh.first_stride), rows, 0, function);
        if constexpr (S > 1)
            for_columns<LENGTH - 3>(sh.rest + sh.rest_stride * first, int(sh.rest_stride), rows, 3, function);
    }

    __device__ void read(Harmonics const& in) {
        for_each(in.sh, in.n, [](float const& coefficient, float& place) { place = coefficient; });
    }
};

template <int S>
__global__ void __launch_bounds__(GAUSSIANS) forward_kernel(Harmonics in, float* colour) {
    __shared__ Rows<S> rows;
    int64_t const i = blockIdx.x * int64_t(GAUSSIANS) + threadIdx.x;
    rows.read(in);
    __syncthreads();
    if (i < in.n) store3(colour, i, sh_colour<S>(rows.mine(), load3(in.directions, i)));
}

template <int S>
__global__ void __launch_bounds__(GAUSSIANS) backward_kernel(Harmonics in, HarmonicsGrads d) {
    __shared__ Rows<S> rows;
    int64_t const i = blockIdx.x * int64_t(GAUSSIANS) + threadIdx.x;
    rows.read(in);
    __syncthreads();
    if (i < in.n) {
        float* const mine = rows.mine();  // each coefficient is read before its gradient takes its place
        store3(d.directions, i, sh_colour_backward<S>(mine, load3(in.directions, i), load3(d.d_colour, i), mine));
    }
    __syncthreads();
    rows.for_each(d.sh, in.n, [](float& gradient, float const& place) { gradient = place; });
}

unsigned blocks_of(int64_t n) {
    return static_cast<unsigned>((n + GAUSSIANS - 1) / GAUSSIANS);
}

template <int S>
void launch_forward(Harmonics const& in, float* colour, Queue const& queue) {
    forward_kernel<S><<<blocks_of(in.n), GAUSSIANS, 0, queue.stream>>>(in, colour);
}

template <int S>
void launch_backward(Harmonics const& in, HarmonicsGrads const& d, Queue const& queue) {
    backward_kernel<S><<<blocks_of(in.n), GAUSSIANS, 0, queue.stream>>>(in, d);
}

}  // namespace

void sh_forward(Harmonics const& in, float* colour, Queue const& queue) {
    if (!in.n) return;
    switch (in.s) {
        case 1:
            return launch_forward<1>(in, colour, queue);
        case 4:
            return launch_forward<4>(in, colour, queue);
        case 9:
            return launch_forward<9>(in, colour, queue);
        default:
            return launch_forward<16>(in, colour, queue);
    }
}

void sh_backward(Harmonics const& in, HarmonicsGrads const& d, Queue const& queue) {
    if (!in.n) return;
    switch (in.s) {
        case 1:
            return launch_backward<1>(in, d, queue);
        case 4:
            return launch_backward<4>(in, d, queue);
        case 9:
            return launch_backward<9>(in, d, queue);
        default:
            return launch_backward<16>(in, d, queue);
    }
}

}  // namespace nurec::cuda
