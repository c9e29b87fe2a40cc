// SPDX-License-Identifier: Apache-2.0
// Values that training keeps of several views (views.h), and the gradients that follow. All pointers are the device's.
// A Gaussian has a row in the lists of each view that may see it. ../blend accumulates the gradients of rows; the
// functions here sum them over the views of a Gaussian.
//
// Letters: as in params.h; H rows, K nodes.
#pragma once

#include "views.h"

namespace nurec::cuda {

// places [V, N]: the row of Gaussian i in view v, -1: no warp tile is near it. `numbers` [H] are the rows' instances,
// and `begins` [H + 1] as in BinWork.
void index_rows(Views const& p, int64_t n_rows, uint32_t const* numbers, int64_t const* begins, int* places,
                Queue const& queue);

// needed [V]: entries that each view's lists need; all lists need `most` [1]. If the lists had too little capacity,
// each view gets an equal share of what was left out, so that the sum is right.
void share_required(Views const& p, WarpTiles const& warp_tiles, int64_t const* offsets, int64_t const* most,
                    int64_t* needed, Queue const& queue);

struct RowSums {
    int const* places;         // [V, N]
    MomentRow const* moments;  // [H]
    int64_t nodes;             // K
    int64_t const* node;       // [A] a Gaussian's
};

struct SceneGrads {  // of a ViewedScene
    GaussianGrads g;
    float* moving_opacities;  // [V, A]
    float* rotations;         // [V, K, 4] world from node, of a camera; zeros at the start
    Coefficients<float> sh;   // [N, S_h, 3] of a camera
    float* lidar;             // [N, 2] of a lidar
    float* pose_grads;        // [V, 6] as pose_gradient has them; zeros at the start; null: not wanted
};

// Differentiates everything but the colours; each number is written once, however many views there are.
void differentiate_views(Views const& p, RowSums const& sums, SceneGrads const& d, Queue const& queue);

// Continues for a camera: from gradients of colours to harmonics, rotations and, added, means.
void differentiate_colours(Views const& p, RowSums const& sums, SceneGrads const& d, Queue const& queue);

}  // namespace nurec::cuda
