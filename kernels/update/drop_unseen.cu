// SPDX-License-Identifier: Apache-2.0
// One thread a Gaussian. Nothing of a seen one is written.
#include "../common/triples.cuh"
#include "../common/visible.cuh"
#include "drop_unseen.h"

namespace nurec::cuda {
namespace {

__global__ void __launch_bounds__(THREADS) drop_unseen_kernel(UnseenGradients p) {
    for_visible_blocks(p.blocks, p.n, [&](int64_t begin) {
        int64_t const i = begin + threadIdx.x;
        if (i >= p.n || is_some(load3(p.d_means, i))) return;
#pragma unroll
        for (int k = 0; k < MAX_UNSEEN_GRADIENTS; ++k)
            for (int c = 0; k < p.count && c < p.widths[k]; ++c) p.gradients[k][p.widths[k] * i + c] = 0;
    });
}

}  // namespace

void drop_unseen(UnseenGradients const& p, Queue const& queue) {
    if (p.n) drop_unseen_kernel<<<blocks_for(p.blocks, p.n), THREADS, 0, queue.stream>>>(p);
}

}  // namespace nurec::cuda
