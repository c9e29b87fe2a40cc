// SPDX-License-Identifier: Apache-2.0
// What a training keeps of several views (params.h), and the gradients that it makes of it. All pointers are the
// device's. A Gaussian has a row in the lists of each view that may meet it; what rays tell of rows is added up by
// ../render_parts, and here what rows tell of a Gaussian.
//
// Letters: as in params.h; H rows, K nodes.
#pragma once

#include "params.h"

namespace nurec::cuda {

// places [V, N]: the row of Gaussian i as view v sees it, -1: no bundle is near to it. `numbers` [H] of the rows, and
// `begins` [H + 1] as BundleWork has them.
void place_rows(Views const& p, int64_t n_rows, uint32_t const* numbers, int64_t const* begins, int* places,
                Queue const& queue);

// needed [V]: entries that the lists of each view need, where those of all need `most` [1]. Of lists that had too
// little room, each view gets an equal share of what was left out: so all together need no less.
void share_needed(Views const& p, Bundles const& bundles, int64_t const* offsets, int64_t const* most, int64_t* needed,
                  Queue const& queue);

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
    float* nudges;            // [V, 6] as nudge_gradient has them; zeros at the start; null: nobody asks
};

// From sums to all but what goes through colours: each number once, whatever the number of views.
void finish_views(Views const& p, RowSums const& sums, SceneGrads const& d, Queue const& queue);

// Of a camera, behind it: from the colours' sums to harmonics, rotations, and, added, means.
void finish_colours(Views const& p, RowSums const& sums, SceneGrads const& d, Queue const& queue);

}  // namespace nurec::cuda
