// SPDX-License-Identifier: Apache-2.0
// Segmented blending: a group of lanes blends a list, or a segment of one, over the list's rays, one lane a ray. A list
// has 32 rays of an image or 16 of a sweep, so a warp takes one list of an image or two of a sweep. Long lists are
// split into segments of about equal length (as split-K splits a matrix product). All pointers are the device's.
//
// The rays of a segment start with the transmittance of all earlier segments: the product of their transmittances.
// For lists with several segments these products are computed first. Then all segments are blended independently, and
// their results are summed. The backward pass starts each segment where the forward pass did.
//
// Letters: N Gaussians, A lists, P rays of a list, S segments of all lists, L entries, C features: 3 of an image, 2 of
// a sweep.
#pragma once

#include "../../project/warp_tiles.h"
#include "../../project/render_params.h"

namespace nurec::cuda {

// Returns P for C features.
constexpr int rays_with(int64_t n_features) {
    return rays_per_list(n_features != 2);
}

// Fields that a segment stores for each of its P rays, if its list has several segments; each field is a line of P
// numbers. TRANSMITTANCE: the product of 1 - alpha. END_TRANSMITTANCE: T after the segment, or -1 if the ray had ended
// before it. C lines begin at FEATURES.
enum SegmentField { TRANSMITTANCE, DISTANCE, END_TRANSMITTANCE, MEDIAN, FEATURES };

struct Segments {
    int64_t most;    // S at most
    int64_t length;  // entries of a segment at most
    int64_t* first;  // [A + 1] first segment of a list
    int* list;       // [most] the list of a segment; -1: unused
    float* fields;   // [most, FEATURES + C, P]
    float* rows;     // [N, gaussian_row_floats] of Gaussians
};

constexpr int64_t max_segments(int64_t n_entries, int64_t n_tiles, int64_t length) {
    return n_entries / length + n_tiles;
}

// Packs the rows [N] of the Gaussians of `p`.
void pack_gaussian_rows(RenderParams const& p, float* rows, Queue const& queue);

// Blends the rows of `segments`. Fills all other arrays of `segments`, which the backward pass reads.
void render_segments(RenderParams const& p, RenderOutputs const& out, Segments const& segments, Queue const& queue);

// The first half of the backward pass: adds the gradients of each row, as moments, to `moments` [N]. The epilogue
// (../backward) turns the moments of all views into gradients.
struct MomentRow;                      // ../../project/moment_row.cuh
constexpr int64_t MOMENT_FLOATS = 16;  // of a MomentRow
void accumulate_segments(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d,
                         Segments const& segments, MomentRow* moments, Queue const& queue);

}  // namespace nurec::cuda
