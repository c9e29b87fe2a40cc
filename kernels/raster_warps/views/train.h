// SPDX-License-Identifier: Apache-2.0
// The backward pass of several views (views.h) up to moments, which the epilogue (../backward) turns into gradients,
// and the gradients of their colours. All pointers are the device's. A Gaussian has a row in the lists of each view
// that may see it; ../blend accumulates the gradients of rows.
//
// Letters: as in views.h; H rows, K nodes.
#pragma once

#include "../../project/moment_row.cuh"
#include "../backward/gaussian_backward.h"
#include "views.h"

namespace nurec::cuda {

// needed [V]: entries that each view's lists need; all lists need `most` [1]. If the lists had too little capacity,
// the missing entries are shared equally among the views, so that the sum is right.
void share_required(Views const& p, WarpTiles const& warp_tiles, int64_t const* offsets, int64_t const* most,
                    int64_t* needed, Queue const& queue);

// The rows of all views.
struct ViewRows {
    int64_t most;             // H at most
    int64_t const* count;     // [1] H; more than `most`: the others are left out
    uint32_t const* numbers;  // [most] their instances
};

// Gradient buffers of the views (../backward/gaussian_backward.h), one after another.
struct ViewMoments {
    int64_t views, n;
    float* at;  // [V, grad_accum_floats(N)]

    __host__ __device__ MomentRow* of(int64_t view) const {
        return reinterpret_cast<MomentRow*>(at + grad_accum_floats(n) * view);
    }
    __host__ __device__ uint8_t* seen(int64_t view) const { return reinterpret_cast<uint8_t*>(of(view) + n); }
};

// Sets the moments of rows [most], and the bytes of all Gaussians, to 0.
void clear_view_moments(ViewRows const& rows, MomentRow* moments, ViewMoments const& to, Queue const& queue);

// Copies the moments of rows to their Gaussians, and marks these as seen.
void scatter_view_moments(ViewRows const& rows, MomentRow const* moments, ViewMoments const& to, Queue const& queue);

// Copies the gradients of the features of a camera [V, N, 3].
void gather_view_features(ViewMoments const& from, float* d_features, Queue const& queue);

struct Nodes {
    int64_t n;          // K
    int64_t const* of;  // [A] a Gaussian's
};

struct ColourGrads {
    float *still_means, *means;  // [S, 3], [V, A, 3]
    float* rotations;            // [V, K, 4] world from node; zeros at the start
    Coefficients<float> sh;      // [N, S_h, 3]
};

// From the moments of cameras to harmonics, rotations and means; each number is written once.
void differentiate_colours(ViewedScene const& scene, ViewMoments const& moments, Nodes const& nodes,
                           ColourGrads const& d, Queue const& queue);

}  // namespace nurec::cuda
