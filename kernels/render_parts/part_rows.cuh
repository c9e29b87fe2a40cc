// SPDX-License-Identifier: Apache-2.0
// What the rays of a part read of a Gaussian.
#pragma once

#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../math/blend.cuh"
#include "../math/aligned_frame.cuh"
#include "params.h"

namespace nurec::cuda {

template <bool MOVING, int C>
constexpr int room_behind = row_floats(MOVING, C) - sizeof(AlignedFrame<float, MOVING>) / sizeof(float);

template <bool MOVING, int C>
struct alignas(16) PartRow {
    AlignedFrame<float, MOVING> frame;
    float features[room_behind<MOVING, C>];  // C of them, then zeros: the last vector is read to its end
};

template <bool MOVING, int C>
constexpr bool is_as_wide = sizeof(PartRow<MOVING, C>) == sizeof(float) * row_floats(MOVING, C);
static_assert(is_as_wide<true, 3> && is_as_wide<false, 3> && is_as_wide<true, 2>);

// As rays of the view's sensor meet it; those of one that does not move begin at the centre.
template <bool MOVING>
__device__ inline Frame<float> frame_on(Trajectory<float> const* path, Frame<float> const& f) {
    return MOVING ? relative_to_sensor(*path, f) : f;
}

template <bool MOVING, int C>
__device__ inline PartRow<MOVING, C> part_row(Frame<float> const& seen, float opacity, float const (&features)[C]) {
    PartRow<MOVING, C> row;
    row.frame = align<MOVING>(alignment_of(seen), seen, opacity);
#pragma unroll
    for (int c = 0; c < room_behind<MOVING, C>; ++c) row.features[c] = c < C ? features[c < C ? c : 0] : 0.f;
    return row;
}

}  // namespace nurec::cuda
