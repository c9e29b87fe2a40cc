// SPDX-License-Identifier: Apache-2.0
// One thread a Gaussian goes through all images, which all threads read in step.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "footprints.h"

namespace nurec::cuda {
namespace {

template <bool PLAIN>
__global__ void __launch_bounds__(THREADS) measure_footprints_kernel(Watched in, float* most) {
    int64_t const i = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    if (i < in.n) most[i] = most_pixels_a_metre<PLAIN>(in, load3(in.means, i), in.node[i]);
}

}  // namespace

void footprints(Watched const& in, float* most, Queue const& queue) {
    if (!in.n) return;
    auto const kernel = are_plain(in) ? measure_footprints_kernel<true> : measure_footprints_kernel<false>;
    kernel<<<blocks_for(in.n), THREADS, 0, queue.stream>>>(in, most);
}

}  // namespace nurec::cuda
