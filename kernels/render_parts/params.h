// SPDX-License-Identifier: Apache-2.0
// Blending of bundles, here the rays of a list each: of a lidar half of what is called so in ../bundle. Lists may be
// cut into parts of about equal length. As many lanes of a warp as a bundle has rays take one, so that a warp takes two
// of a lidar. All pointers are the device's.
//
// A part's rays start with what the parts before it let pass, which is the product of what each lets pass. So these
// products come first, where a list has several parts; then all parts are blended side by side, then added up. The
// backward pass begins a part where the forward pass did. Letters: N Gaussians, A bundles, P rays of one, S parts of
// all lists, L entries, C features: 3 of an image, 2 of a sweep.
#pragma once

#include "../bundle/params.h"
#include "../render/params.h"

namespace nurec::cuda {

// Of a PartRow (part_rows.cuh), which is read as vectors of four.
constexpr int64_t row_floats(bool moving, int64_t n_features) {
    return moving && n_features == 3 ? 20 : 16;
}

// P of those with C.
constexpr int rays_with(int64_t n_features) {
    return rays_of_list(n_features != 2);
}

// What a part leaves of each of its P rays, a line of P numbers each; where a list has several parts.
// PASSES: product of 1 - alpha. END: T behind the part, or -1 where the ray had ended before it. From FEATURES on: C
// lines.
enum Line { PASSES, DISTANCE, END, MEDIAN, FEATURES };

struct Parts {
    int64_t most;    // S at most
    int64_t length;  // entries of a part at most
    int64_t* first;  // [A + 1] first part of a bundle
    int* bundle;     // [most] of a part; -1: there is no such part
    float* left;     // [most, FEATURES + C, P]
    float* rows;     // [N, row_floats] of Gaussians
};

constexpr int64_t most_parts(int64_t n_entries, int64_t n_bundles, int64_t length) {
    return n_entries / length + n_bundles;
}

// Of the Gaussians of `p`, [N].
void fill_part_rows(RenderParams const& p, float* rows, Queue const& queue);

// Blends the rows of `parts` and fills all else in it, which the backward pass reads.
void render_parts(RenderParams const& p, RenderOutputs const& out, Parts const& parts, Queue const& queue);
void render_parts_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, Parts const& parts,
                           Queue const& queue);

// The first half of it, for whoever goes on from the sums by other ways: what rays tell of each row is added to
// `moments`, one a row.
struct MomentRow;                      // ../render/moment_row.cuh
constexpr int64_t MOMENT_FLOATS = 16;  // of one
void add_up_parts(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, Parts const& parts,
                  MomentRow* moments, Queue const& queue);

}  // namespace nurec::cuda
