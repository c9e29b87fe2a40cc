// SPDX-License-Identifier: Apache-2.0
// A block of threads takes a block of Gaussians, and one view after another. The test is the projection's first one.
#include "../common/flat.cuh"
#include "../math/activate.cuh"
#include "visible_blocks.h"
#include "visibility.cuh"

namespace nurec::cuda {
namespace {

static_assert(THREADS == BLOCK_GAUSSIANS);

struct Extent {  // of a Gaussian in the world
    Vec3<float> mean, s;
    float reach;  // 0: too transparent to be seen
};

__device__ Extent extent_of(BlockScene const& in, int64_t i) {
    Vec3<float> const s = load3(in.log_scales, i);
    return {load3(in.means, i), {exp(s.x), exp(s.y), exp(s.z)}, reach_of(sigmoid(in.opacity_logits[i]))};
}

__device__ bool sees(ViewRow<float> const& row, bool has_lens, Extent const& g) {
    ProjectParams const none = {};  // a camera's test reads nothing of it
    Vec3<float> const mean = g.mean - row.centre, still = {0, 0, 0};
    if (has_lens) return may_see<true>(none, row.view, nullptr, mean, g.s, still, g.reach, row.lens);
    return may_see<true>(none, row.view, nullptr, mean, g.s, still, g.reach, OwnLens());
}

__global__ void __launch_bounds__(THREADS) mark_visible_blocks_kernel(BlockScene in, uint8_t* visible) {
    __shared__ ViewRow<float> row;
    int64_t const i = first_row() + threadIdx.x;
    bool some = smaller(first_row() + THREADS, in.n) > in.still;  // the times of the views place those that move
    Extent const g = some || i >= in.n ? Extent{} : extent_of(in, i);
    for (int64_t v = 0; !some && v < in.views; ++v) {
        copy_numbers(row, in.view[v].row);
        __syncthreads();
        some = __syncthreads_or(g.reach > 0 && sees(row, in.view[v].has_lens, g));
    }
    if (threadIdx.x == 0) visible[blockIdx.x] = some;
}

}  // namespace

void visible_blocks(BlockScene const& in, uint8_t* visible, Queue const& queue) {
    if (in.n) mark_visible_blocks_kernel<<<blocks_for(in.n), THREADS, 0, queue.stream>>>(in, visible);
}

}  // namespace nurec::cuda
