// SPDX-License-Identifier: Apache-2.0
// Opacities and scales of copies that stand in one Gaussian's place. Pointers are those of the driver's device.
#pragma once

#include "../common/device.h"
#include "../math/mcmc_split.cuh"

namespace nurec {

struct CopiedGaussians {
    int64_t n, sensors;     // N, S: 1 or 2
    float const* logits;    // [N, S] opacities of the one that is copied
    int64_t const* copies;  // [N] 1 to MAX_COPIES
    float* split_logits;    // [N, S] opacities of each copy
    float* factors;         // [N] of its scales
};

template <int S>
NUREC_FN void part_one(CopiedGaussians const& in, int64_t i) {
    float logits[S];
    for (int s = 0; s < S; ++s) logits[s] = in.logits[S * i + s];
    SplitLogits<float, S> const found = split_logits(logits, int(in.copies[i]));
    for (int s = 0; s < S; ++s) in.split_logits[S * i + s] = found.logits[s];
    in.factors[i] = found.factor;
}

namespace cpu {

void mcmc_split(CopiedGaussians const& in);

}  // namespace cpu

namespace cuda {

void mcmc_split(CopiedGaussians const& in, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
