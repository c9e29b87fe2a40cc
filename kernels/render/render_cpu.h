// SPDX-License-Identifier: Apache-2.0
// Rendering on the CPU: what goes in and comes out, as plain arrays.
//
// Letters: N Gaussians, R rays, A tiles of P rays, L entries of all tiles' lists, C features.
#pragma once

#include "../common/gaussians_cpu.h"

namespace nurec::cpu {

struct Inputs {
    Gaussians g;
    int64_t n_features, n_rays, n_tiles, rays_per_tile;
    float const* features;     // [N, C]
    float const* origins;      // [R, 3] relative to the centre
    float const* directions;   // [R, 3] unit
    float const* delays;       // [R] seconds after the Gaussians' time
    int64_t const* rays;       // [A, P], -1 where a tile has fewer than P
    int64_t const* offsets;    // [A + 1]
    int64_t const* gaussians;  // [L] nearest first in each tile
    bool moving;               // origins or delays are not all zero
};

struct Outputs {
    float* features;       // [R, C] sum of w times feature
    float* distance;       // [R] sum of w t
    float* transmittance;  // [R]
    float* median;         // [R] t at which T crosses 0.5, 0 where it does not
};

struct OutputGrads {
    float const* features;
    float const* distance;
    float const* transmittance;
};

// Each zero at the start. The last two may be null: then rays get no gradient.
struct InputGrads {
    GaussianGrads g;
    float* features;
    float* origins;
    float* directions;
};

void render_forward(Inputs const& in, Outputs const& out);
void render_backward(Inputs const& in, Outputs const& out, OutputGrads const& d_out, InputGrads const& d_in);

}  // namespace nurec::cpu
