// SPDX-License-Identifier: Apache-2.0
// Noise that moves transparent Gaussians (SGLD), and the least thickness of scales, both in place. Pointers are those
// of the driver's device, quats begin at a multiple of 16 bytes.
#pragma once

#include "../common/blocks.h"
#include "../common/device.h"
#include "../math/activate.cuh"
#include "../math/random.cuh"

namespace nurec {

struct ExploringGaussians {
    int64_t n, columns;           // N, C
    float* means;                 // [N, 3] metres, node frame
    float* log_scales;            // [N, 3]
    float const* quats;           // [N, 4] any length
    float const* opacity_logits;  // [N]
    float const* lidar_logits;    // [N, C]; with three columns, the last one is the lidar's own opacity
    float const* step;            // [] a whole number, which is another one at every draw
    float const* amount;          // [] standard deviations at opacity 0
    float const* failed;          // [] not 0: nothing moves; null: 0
    uint32_t seed;
    float least;           // of a log scale
    VisibleBlocks blocks;  // others stay as they are
};

constexpr uint32_t NOISE = 1;  // stream of its random numbers

NUREC_FN float amount_of(ExploringGaussians const& in) {
    return in.failed ? *in.amount * (1 - *in.failed) : *in.amount;
}

// A Gaussian's random walk in its standard deviations, from its opacity for the sensor that sees it as more opaque.
NUREC_FN float wandering_of(ExploringGaussians const& in, int64_t i) {
    float const seen = in.opacity_logits[i];
    bool const own = in.columns > 2;
    float const logit = own ? larger(seen, in.lidar_logits[in.columns * i + 2]) : seen;
    return amount_of(in) * restless(sigmoid(logit));
}

// Normal numbers of a Gaussian: those of the step, wherever the launch was recorded.
NUREC_FN Vec3<float> eta_of(ExploringGaussians const& in, int64_t i) {
    return drawn<float>(uint32_t(i), uint32_t(*in.step), in.seed, NOISE);
}

// The larger number; NaN stays NaN.
NUREC_FN float at_least(float a, float least) {
    return a < least ? least : a;
}

namespace cpu {

void sgld_noise(ExploringGaussians const& in);

}  // namespace cpu

namespace cuda {

void sgld_noise(ExploringGaussians const& in, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
