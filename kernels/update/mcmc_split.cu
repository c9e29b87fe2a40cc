// SPDX-License-Identifier: Apache-2.0
// A thread takes a Gaussian, with as many terms as that has copies.
#include "../common/launch.cuh"
#include "mcmc_split.h"

namespace nurec::cuda {
namespace {

template <int S>
__global__ void __launch_bounds__(THREADS) split_gaussians_kernel(CopiedGaussians in) {
    int64_t const i = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    if (i < in.n) part_one<S>(in, i);
}

}  // namespace

void mcmc_split(CopiedGaussians const& in, Queue const& queue) {
    if (!in.n) return;
    auto const kernel = in.sensors == 1 ? split_gaussians_kernel<1> : split_gaussians_kernel<2>;
    kernel<<<blocks_for(in.n), THREADS, 0, queue.stream>>>(in);
}

}  // namespace nurec::cuda
