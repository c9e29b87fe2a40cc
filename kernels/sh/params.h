// SPDX-License-Identifier: Apache-2.0
// Colours by direction. All pointers are the device's. Letters: N Gaussians, S coefficients.
#pragma once

#include "../common/launch.cuh"

namespace nurec::cuda {

struct Harmonics {
    int64_t n, s;             // s: 1, 4, 9 or 16
    float const* sh;          // [N, S, 3]
    float const* directions;  // [N, 3] unit
};

void sh_forward(Harmonics const& in, float* colour, cudaStream_t stream);  // [N, 3]
void sh_backward(Harmonics const& in, float const* d_colour, float* d_sh, float* d_directions, cudaStream_t stream);

}  // namespace nurec::cuda
