// SPDX-License-Identifier: Apache-2.0
// Colours by direction. Pointers are those of the driver's device. Letters: N Gaussians, S coefficients.
#pragma once

#include "../common/device.h"

namespace nurec {

struct Harmonics {
    int64_t n, s;             // s: 1, 4, 9 or 16
    float const* sh;          // [N, S, 3]
    float const* directions;  // [N, 3] unit
};

struct HarmonicsGrads {
    float const* d_colour;  // [N, 3]
    float* sh;
    float* directions;
};

namespace cpu {

void sh_forward(Harmonics const& in, float* colour);  // [N, 3]
void sh_backward(Harmonics const& in, HarmonicsGrads const& d);

}  // namespace cpu

namespace cuda {

void sh_forward(Harmonics const& in, float* colour, Queue const& queue);
void sh_backward(Harmonics const& in, HarmonicsGrads const& d, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
