// SPDX-License-Identifier: Apache-2.0
// One thread a ray. A texel is some twenty pixels wide, so a warp looks between one to three sets of four texels: the
// backward pass adds up over the lanes that share a set before anything goes to memory, and a dozen lanes then add the
// twelve sums (four texels of three channels) at once.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "../common/warp.cuh"
#include "sky.h"

namespace nurec::cuda {
namespace {

constexpr int CORNERS = 4, CHANNELS = 3, SUMS = CORNERS * CHANNELS;

__global__ void __launch_bounds__(THREADS)
    blend_sky_kernel(SkyRays in, int texels, float const* features, float* image) {
    int64_t const i = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    if (i >= in.n) return;
    SkyPlace<float> const at = sky_place(load3(in.directions, i), in.height, in.width);
    store3(image, i, load3(features, i) + in.transmittance[i] * sky_colour(in.sky, texels, at));
}

// Adds the gradients of the warp's logits to the map's. Sets of four texels take turns, the next one being that of the
// first lane which still has something to give.
__device__ void add_to_map(SkyPlace<float> const& at, Vec3<float> d, int texels, float* sky) {
    int const lane = int(threadIdx.x) % 32, sum = summed_value<SUMS>(lane);
    unsigned waiting = __ballot_sync(ALL_LANES, d.x != 0 || d.y != 0 || d.z != 0);
    while (waiting) {
        int const leader = __ffs(int(waiting)) - 1, first = __shfl_sync(ALL_LANES, at.first, leader);
        int const right = __shfl_sync(ALL_LANES, at.right, leader), below = __shfl_sync(ALL_LANES, at.below, leader);
        bool const joins = at.first == first;
        float values[SUMS];
#pragma unroll
        for (int corner = 0; corner < CORNERS; ++corner) {
            float const weight = joins ? at.weight(corner) : 0.f;
            values[3 * corner] = weight * d.x, values[3 * corner + 1] = weight * d.y;
            values[3 * corner + 2] = weight * d.z;
        }
        float const total = sums_by_halves(values, lane);
        SkyPlace<float> const shared = {first, right, below, 0, 0};
        if (sum >= 0) atomicAdd(sky + sum % CHANNELS * texels + shared.texel(sum / CHANNELS), total);
        waiting &= ~__ballot_sync(ALL_LANES, joins);
    }
}

__global__ void __launch_bounds__(THREADS) blend_sky_backward_kernel(SkyRays in, int texels, SkyGrads d) {
    int64_t const i = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    SkyPlace<float> at = {};
    SkyGrad<float> found = {};  // of lanes without a ray: nothing to give
    if (i < in.n) {
        at = sky_place(load3(in.directions, i), in.height, in.width);
        Vec3<float> const colour = sky_colour(in.sky, texels, at);
        found = sky_backward(colour, in.transmittance[i], load3(d.image, i));
        d.transmittance[i] = found.transmittance;
    }
    add_to_map(at, found.logits, texels, d.sky);
}

}  // namespace

void over_sky(SkyRays const& in, float const* features, float* image, Queue const& queue) {
    if (!in.n) return;
    blend_sky_kernel<<<blocks_for(in.n), THREADS, 0, queue.stream>>>(in, in.texels(), features, image);
}

void over_sky_backward(SkyRays const& in, SkyGrads const& d, Queue const& queue) {
    cudaMemsetAsync(d.sky, 0, CHANNELS * sizeof(float) * std::size_t(in.texels()), queue.stream);
    if (!in.n) return;
    blend_sky_backward_kernel<<<blocks_for(in.n), THREADS, 0, queue.stream>>>(in, in.texels(), d);
}

}  // namespace nurec::cuda
