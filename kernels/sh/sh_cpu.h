// SPDX-License-Identifier: Apache-2.0
// Colours by direction on the CPU: plain arrays. Letters: N Gaussians, S coefficients.
#pragma once

#include <cstdint>

namespace nurec::cpu {

struct Harmonics {
    int64_t n, s;             // s: 1, 4, 9 or 16
    float const* sh;          // [N, S, 3]
    float const* directions;  // [N, 3] unit
};

void sh_forward(Harmonics const& in, float* colour);  // [N, 3]
void sh_backward(Harmonics const& in, float const* d_colour, float* d_sh, float* d_directions);

}  // namespace nurec::cpu
