// SPDX-License-Identifier: Apache-2.0
// One thread a Gaussian.
#include "../common/triples.cuh"
#include "../math/sh.cuh"
#include "sh_rows.cuh"

namespace nurec::cuda {
namespace {

template <int S>
__global__ void __launch_bounds__(GAUSSIANS) evaluate_sh_kernel(Harmonics in, float* colour) {
    __shared__ Rows<S> rows;
    int64_t const i = blockIdx.x * int64_t(GAUSSIANS) + threadIdx.x;
    rows.read(in.sh, in.n);
    __syncthreads();
    if (i < in.n) store3(colour, i, sh_colour<S>(rows.mine(), load3(in.directions, i)));
}

template <int S>
__global__ void __launch_bounds__(GAUSSIANS) evaluate_sh_backward_kernel(Harmonics in, HarmonicsGrads d) {
    __shared__ Rows<S> rows;
    int64_t const i = blockIdx.x * int64_t(GAUSSIANS) + threadIdx.x;
    rows.read(in.sh, in.n);
    __syncthreads();
    if (i < in.n) {
        auto const mine = rows.mine();  // each coefficient is read before its gradient takes its place
        store3(d.directions, i, sh_colour_backward<S>(mine, load3(in.directions, i), load3(d.d_colour, i), mine));
    }
    __syncthreads();
    rows.write(d.sh, in.n);
}

template <int S>
void launch_forward(Harmonics const& in, float* colour, Queue const& queue) {
    evaluate_sh_kernel<S><<<blocks_of(in.n), GAUSSIANS, 0, queue.stream>>>(in, colour);
}

template <int S>
void launch_backward(Harmonics const& in, HarmonicsGrads const& d, Queue const& queue) {
    evaluate_sh_backward_kernel<S><<<blocks_of(in.n), GAUSSIANS, 0, queue.stream>>>(in, d);
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
