// SPDX-License-Identifier: Apache-2.0
// Opacities at some times, 0 for Gaussians of an absent node. Pointers are those of the driver's device.
// Letters: N Gaussians, the first S always present; K nodes; Q times.
#pragma once

#include "../common/device.h"

namespace nurec {

// When nodes are there.
struct Presence {
    int64_t n, still;     // N, S
    int64_t const* node;  // [N] rows of the next two, read from S on
    double const* first;  // [K] seconds, from when
    double const* last;   // [K] seconds, until when
};

// Opacities at one time. Several times may read the same opacities.
struct OpacitiesAt {
    double const* time;  // one, seconds
    float const* from;   // [N]
    float* to;           // [N]
};

namespace cpu {

void mask_absent_actors(Presence const& in, OpacitiesAt const* at, int64_t times);

}  // namespace cpu

namespace cuda {

void mask_absent_actors(Presence const& in, OpacitiesAt const* at, int64_t times, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
