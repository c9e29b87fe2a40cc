// SPDX-License-Identifier: Apache-2.0
// Means over N Gaussians that a loss asks to be small. Pointers are those of the driver's device.
#pragma once

#include "../common/blocks.h"
#include "../common/device.h"
#include "../math/activate.cuh"

namespace nurec {

constexpr int TERMS = 3;  // opacity, scale, and the tie of both opacities

struct RegularisedGaussians {
    int64_t n;
    float const* opacities;        // [N]
    float const* lidar_opacities;  // [N]; null: the lidar has none of its own
    float const* scales;           // [N, 3]; not looked at for gradients
    VisibleBlocks blocks;          // means are over their Gaussians
};

struct Terms {
    float *opacity, *scale, *tie;  // [] each
};

// Gradients of the terms, null: 0; and those that they make.
struct TermGrads {
    float const *opacity, *scale, *tie;  // [] each
    float* d_opacities;                  // [N]; without the lidar's [1], which is that of each
    float* d_lidar_opacities;            // [N]
    float* d_scales;                     // [1], that of each number
};

// Adds a Gaussian's opacities, over the sensors, and its tie.
NUREC_FN void add_opacities(RegularisedGaussians const& in, int64_t i, float& opacity, float& tie) {
    float const seen = in.opacities[i];
    opacity += seen;
    if (!in.lidar_opacities) return;
    float const by_lidar = in.lidar_opacities[i];
    opacity += by_lidar, tie += tie_of(seen, by_lidar);
}

// Gradient of one number of a mean over `n`: divided as torch divides, so that equal weights cancel exactly.
NUREC_FN float share(float const* gradient, int64_t n) {
    return gradient ? *gradient / float(n) : 0.f;
}

NUREC_FN void opacities_backward(RegularisedGaussians const& in, TermGrads const& d, int64_t i) {
    float const each = share(d.opacity, in.n);
    float const pull = share(d.tie, in.n) * tie_slope(in.opacities[i], in.lidar_opacities[i]);
    d.d_opacities[i] = each + pull, d.d_lidar_opacities[i] = each - pull;
}

namespace cpu {

void regularisers(RegularisedGaussians const& in, Terms const& out);
void regularisers_backward(RegularisedGaussians const& in, TermGrads const& d);

}  // namespace cpu

namespace cuda {

void regularisers(RegularisedGaussians const& in, Terms const& out, Queue const& queue);
void regularisers_backward(RegularisedGaussians const& in, TermGrads const& d, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
