// SPDX-License-Identifier: Apache-2.0
// A Gaussian as rays read it: its aligned frame (math/aligned_frame.cuh) and its features.
#pragma once

#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../math/blend.cuh"
#include "../math/aligned_frame.cuh"
#include "render_params.h"

namespace nurec::cuda {

template <bool MOVING, int C>
constexpr int feature_slots = gaussian_row_floats(MOVING, C) - sizeof(AlignedFrame<float, MOVING>) / sizeof(float);

template <bool MOVING, int C>
struct alignas(16) GaussianRow {
    AlignedFrame<float, MOVING> frame;
    float features[feature_slots<MOVING, C>];  // C of them, then zeros: the last vector is read to its end
};

template <bool MOVING, int C>
constexpr bool fills_row = sizeof(GaussianRow<MOVING, C>) == sizeof(float) * gaussian_row_floats(MOVING, C);
static_assert(fills_row<true, 3> && fills_row<false, 3> && fills_row<true, 2>);

// Returns the frame relative to the sensor. Rays of a sensor that does not move begin at the centre.
template <bool MOVING>
__device__ inline Frame<float> frame_on(Trajectory<float> const* path, Frame<float> const& f) {
    return MOVING ? relative_to_sensor(*path, f) : f;
}

template <bool MOVING, int C>
__device__ inline GaussianRow<MOVING, C> make_gaussian_row(Frame<float> const& seen, float opacity,
                                                           float const (&features)[C]) {
    GaussianRow<MOVING, C> row;
    row.frame = align<MOVING>(alignment_of(seen), seen, opacity);
#pragma unroll
    for (int c = 0; c < feature_slots<MOVING, C>; ++c) row.features[c] = c < C ? features[c < C ? c : 0] : 0.f;
    return row;
}

}  // namespace nurec::cuda
