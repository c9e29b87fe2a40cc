// SPDX-License-Identifier: Apache-2.0
// Size of Gaussians in the image that sees them from nearest. Pointers are those of the driver's device.
//
// Letters: N Gaussians, F images, K tracks.
#pragma once

#include "../common/device.h"
#include "../math/footprint.cuh"

namespace nurec {

struct Watched {
    int64_t n, images, tracks;      // N, F, K
    float const* means;             // [N, 3] in the frames of their nodes
    int64_t const* node;            // [N] 0: the world; k + 1: track k
    Lookout<float> const* lookout;  // [F]
    bool const* valid;              // [F, K] whether a track exists then
    float const* quaternions;       // [F, K, 4] of tracks, unit
    float const* translations;      // [F, K, 3]
    float nearest, margin;          // metres, pixels
};

// Pixels a metre for Gaussian i at `p` in the frame of its node.
NUREC_FN float most_pixels_a_metre(Watched const& in, Vec3<float> p, int64_t node) {
    float most = 0;
    for (int64_t f = 0; f < in.images; ++f) {
        Vec3<float> at = p;
        if (node > 0) {
            int64_t const row = f * in.tracks + node - 1;
            if (!in.valid[row]) continue;
            float const *q = in.quaternions + 4 * row, *t = in.translations + 3 * row;
            at = quat_rotate<float>({q[0], q[1], q[2], q[3]}, p) + Vec3<float>{t[0], t[1], t[2]};
        }
        Lookout<float> const& from = in.lookout[f];
        most = larger(most, pixels_a_metre(from.camera, from.R * at + from.t, in.nearest, in.margin));
    }
    return most;
}

namespace cpu {

void footprints(Watched const& in, float* most);  // [N] pixels a metre

}  // namespace cpu

namespace cuda {

void footprints(Watched const& in, float* most, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
