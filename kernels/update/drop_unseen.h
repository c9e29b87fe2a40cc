// SPDX-License-Identifier: Apache-2.0
// Gradients of Gaussians that no view of a step has seen, with visible blocks. On CUDA alone.
#pragma once

#include "../common/blocks.h"
#include "../common/device.h"

namespace nurec::cuda {

constexpr int MAX_UNSEEN_GRADIENTS = 4;

struct UnseenGradients {
    int64_t n;                               // N
    VisibleBlocks blocks;                    // of others nothing is read or written
    float const* d_means;                    // [N, 3] all 0: no view has seen the Gaussian
    int count;                               // of the gradients
    float* gradients[MAX_UNSEEN_GRADIENTS];  // [N, width] each
    int widths[MAX_UNSEEN_GRADIENTS];
};

// Sets the gradients of unseen Gaussians to 0.
void drop_unseen(UnseenGradients const& p, Queue const& queue);

}  // namespace nurec::cuda
