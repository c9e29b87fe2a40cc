// SPDX-License-Identifier: Apache-2.0
// One thread a Gaussian.
#include "params.h"

#include "../math/sh.cuh"
#include "../common/triples.cuh"

namespace nurec::cuda {
namespace {

template <int S>
__global__ void forward_kernel(Harmonics in, float* colour) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < in.n) store3(colour, i, sh_colour<S>(in.sh + 3 * S * i, load3(in.directions, i)));
}

template <int S>
__global__ void backward_kernel(Harmonics in, float const* d_colour, float* d_sh, float* d_directions) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= in.n) return;
    store3(d_directions, i,
           sh_colour_backward<S>(in.sh + 3 * S * i, load3(in.directions, i), load3(d_colour, i), d_sh + 3 * S * i));
}

template <int S>
void launch_forward(Harmonics const& in, float* colour, cudaStream_t stream) {
    forward_kernel<S><<<blocks_for(in.n), THREADS, 0, stream>>>(in, colour);
}

template <int S>
void launch_backward(Harmonics const& in, float const* d_colour, float* d_sh, float* d_directions,
                     cudaStream_t stream) {
    backward_kernel<S><<<blocks_for(in.n), THREADS, 0, stream>>>(in, d_colour, d_sh, d_directions);
}

}  // namespace

void sh_forward(Harmonics const& in, float* colour, cudaStream_t stream) {
    if (!in.n) return;
    switch (in.s) {
        case 1:
            return launch_forward<1>(in, colour, stream);
        case 4:
            return launch_forward<4>(in, colour, stream);
        case 9:
            return launch_forward<9>(in, colour, stream);
        default:
            return launch_forward<16>(in, colour, stream);
    }
}

void sh_backward(Harmonics const& in, float const* d_colour, float* d_sh, float* d_directions, cudaStream_t stream) {
    if (!in.n) return;
    switch (in.s) {
        case 1:
            return launch_backward<1>(in, d_colour, d_sh, d_directions, stream);
        case 4:
            return launch_backward<4>(in, d_colour, d_sh, d_directions, stream);
        case 9:
            return launch_backward<9>(in, d_colour, d_sh, d_directions, stream);
        default:
            return launch_backward<16>(in, d_colour, d_sh, d_directions, stream);
    }
}

}  // namespace nurec::cuda
