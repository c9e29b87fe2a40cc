// SPDX-License-Identifier: Apache-2.0
// From the stored parameters of N Gaussians to the values that sensors see, and back. Pointers are those of the
// driver's device; quats and their gradients begin at a multiple of 16 bytes. C columns of lidar logits: intensity,
// ray drop, and the lidar's own opacity if there are three.
#pragma once

#include "../common/blocks.h"
#include "../common/device.h"
#include "../math/activate.cuh"

namespace nurec {

struct StoredGaussians {
    int64_t n, columns;           // N, C
    float const* quats;           // [N, 4] any length
    float const* log_scales;      // [N, 3]
    float const* opacity_logits;  // [N]
    float const* lidar_logits;    // [N, C]
    VisibleBlocks blocks;         // of the others only opacities are written: 0
};

struct Activations {
    float* quats;            // [N, 4] unit
    float* scales;           // [N, 3] metres
    float* opacities;        // [N]
    float* lidar;            // [N, 2]
    float* lidar_opacities;  // [N]; null: C is 2
};

// Gradients of activations, and the values that they are computed from. Null: nothing depends on it.
struct ActivationGrads {
    int64_t n, columns;
    float const *quats, *d_quats;  // as stored
    float const *scales, *d_scales;
    float const *opacities, *d_opacities;
    float const *lidar, *d_lidar;
    float const *lidar_opacities, *d_lidar_opacities;
};

// Gradients of stored parameters. Null: none.
struct StoredGrads {
    float* quats;
    float* log_scales;
    float* opacity_logits;
    float* lidar_logits;
};

// Activates the lidar's number in column `c`.
NUREC_FN void activate_lidar(Activations const& out, int64_t i, int c, float logit) {
    float const value = sigmoid(logit);
    if (c < LIDAR_VALUES)
        out.lidar[LIDAR_VALUES * i + c] = value;
    else
        out.lidar_opacities[i] = value;
}

NUREC_FN float lidar_backward(ActivationGrads const& in, int64_t i, int c) {
    bool const own = c >= LIDAR_VALUES;
    float const* const d = own ? in.d_lidar_opacities : in.d_lidar;
    int64_t const at = own ? i : LIDAR_VALUES * i + c;
    return d ? sigmoid_backward((own ? in.lidar_opacities : in.lidar)[at], d[at]) : 0.f;
}

namespace cpu {

void activate(StoredGaussians const& in, Activations const& out);
void activate_backward(ActivationGrads const& in, StoredGrads const& out);

}  // namespace cpu

namespace cuda {

void activate(StoredGaussians const& in, Activations const& out, Queue const& queue);
void activate_backward(ActivationGrads const& in, StoredGrads const& out, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
