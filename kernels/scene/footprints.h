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
    Lens<float> const* lenses;      // [F] zeros of a camera without; null: all are
    bool const* masked;             // pixels of all masks: these show no scene
    int64_t const* masks;           // [F] first pixel of the camera's mask, or -1; null: no camera has one
};

// Whether the pixel at a place, or the nearest one in the image, is masked.
NUREC_FN bool is_masked(Watched const& in, int64_t image, Place<float> at) {
    int64_t const first = in.masks ? in.masks[image] : -1;
    if (first < 0) return false;
    CameraModel<float> const& camera = in.lookout[image].camera;
    auto const u = int64_t(larger(0.f, smaller(at.u, camera.width - 1)));
    auto const v = int64_t(larger(0.f, smaller(at.v, camera.height - 1)));
    return in.masked[first + v * int64_t(camera.width) + u];
}

// Pixels a metre of a point in the frame of a camera that may have a lens or a mask.
NUREC_FN float pixels_a_metre_in(Watched const& in, int64_t image, Vec3<float> p) {
    CameraModel<float> const& camera = in.lookout[image].camera;
    bool const bent = in.lenses && in.lenses[image].exists();
    if (!bent && !(p.z > in.nearest)) return 0;
    Place<float> const at = bent ? place_through(camera, in.lenses[image], p) : camera.project(p);
    float const found = pixels_a_metre_at(camera, at, in.nearest, in.margin);
    return found > 0 && !is_masked(in, image, at) ? found : 0;
}

constexpr bool are_plain(Watched const& in) {
    return !in.lenses && !in.masks;
}

// Pixels a metre for Gaussian i at `p` in the frame of its node. PLAIN: no camera has a lens or a mask.
template <bool PLAIN>
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
        Vec3<float> const local = from.R * at + from.t;
        most = larger(
            most, PLAIN ? pixels_a_metre(from.camera, local, in.nearest, in.margin) : pixels_a_metre_in(in, f, local));
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
