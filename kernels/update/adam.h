// SPDX-License-Identifier: Apache-2.0
// Adam over several tensors. Pointers are those of the driver's device.
#pragma once

#include "../common/blocks.h"
#include "../common/device.h"
#include "../math/adam.cuh"
#include "../math/bfloat.cuh"

namespace nurec {

constexpr int MAX_TENSORS = 20;

struct AdamTensor {
    int64_t n;
    float const* gradient;  // [n], as all below; null: of harmonics, as AdamHarmonics has it
    float* value;
    void* first;  // moments: BFloat where `narrow`, else float
    void* second;
    float* step;        // [] how many steps it has taken
    float const* rate;  // []
    bool narrow;
    bool touched_only;  // values with a gradient of exactly 0 stay as they are, and so do their moments
    int64_t of_block;   // values of a block of Gaussians, where those of hidden blocks stay; 0: all are updated
};

template <class M>
constexpr bool NARROW = sizeof(M) < sizeof(float);

// Start of this step's draws, once it is counted, for moments M of the k-th tensor: none for floats.
template <class M>
NUREC_FN uint32_t draws_of(AdamTensor const& t, int k) {
    return NARROW<M> ? start_of_draws(uint32_t(*t.step), uint32_t(k)) : 0;
}

NUREC_FN void keep(float& to, float x, uint32_t) {
    to = x;
}

NUREC_FN void keep(BFloat& to, float x, uint32_t draw) {
    to = rounded(x, draw);
}

// Coefficients of N Gaussians without a stored gradient: the sum of basis(directions) x colours over the views.
struct AdamHarmonics {
    int64_t n, s;  // s: 1, 4, 9 or 16; n 0: there are none
    int sh, rest;  // of the tensors those with the first coefficients [N, 1, 3], and the others [N, S - 1, 3]
    int64_t views;
    int64_t stride;           // floats from a view to the next, of both
    float const* directions;  // [views, N, 3] unit
    float const* colours;     // [views, N, 3]
    VisibleBlocks blocks;     // factors of others are not read; where both tensors are touched_only alone
};

struct AdamParams {
    int count;  // of the tensors
    AdamTensor tensors[MAX_TENSORS];
    AdamHarmonics harmonics;
    float const* failed;   // [] not 0: nothing is to be changed; null: 0
    int64_t n;             // Gaussians of the tensors with `of_block`
    VisibleBlocks blocks;  // gradients of others are not read: their Gaussians stay, and so do their moments
    double first, second;  // betas
    AdamBetas<float> betas;
};

namespace cpu {

void adam(AdamParams const& p);

}  // namespace cpu

namespace cuda {

void adam(AdamParams const& p, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
