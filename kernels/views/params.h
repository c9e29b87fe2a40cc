// SPDX-License-Identifier: Apache-2.0
// Several views at once, of one lidar or of cameras with images of one size: one launch a stage whatever their number.
// Who looks at a scene without training it keeps nothing for gradients; learned.h has what a training keeps. All
// pointers are the device's.
//
// Letters: V views, S Gaussians that stand still and A that move, N = S + A, H of all V N that some view sees
// ("looks"), R rays of all views, P pixels of an image, A bundles, L entries of all lists, C features.
#pragma once

#include "../bundle/params.h"
#include "../math/view_row.cuh"
#include "../project/params.h"
#include "../render_parts/params.h"
#include "../sh/params.h"

namespace nurec {

// Gaussian i as view v sees it is number N v + i.
struct ViewedScene {
    Gaussians g;                    // at the first view's time; those at the next one's follow: means [V, A, 3] and so
                                    // on, and `opacities` [S] are of what stands still
    float const* moving_opacities;  // [V, A] 0: it is not there at that time
    float const* frames;            // [V, A, 4] world from node: harmonics are in the axes of the node
    Coefficients<float const> sh;   // [N, S_h, 3]
    int64_t coefficients;           // S_h
    float const* lidar;             // [N, 2] intensity and ray drop
    ViewRow<float> const* rows;     // [V]
    int64_t views;                  // V
};

// What the views' sensors measure along. The P pixels of a camera are alike in all its views.
struct ViewedRays {
    bool is_camera, alike, moving;  // alike: all rays have the first fraction; moving: they have origins or delays
    bool own;                       // views are of several cameras, so that each brings its pixels, R of all
    int64_t n;                      // R
    float const* directions;        // [P, 3] or [R, 3] unit, sensor frame
    float const* fractions;         // [P] or [R] 0 at the start of a view, 1 at its end
    int width, height, bundle_width, bundle_height;  // of an image and of a bundle, in pixels
    Sweeps sweeps;                                   // of a lidar

    constexpr int64_t pixels() const { return int64_t(width) * height; }
};

struct Views {
    ViewedScene scene;
    ViewedRays rays;
};

namespace cuda {

struct RayArrays {
    float* directions;  // [R, 3] unit, world axes
    float* delays;      // [R] seconds after the middle of the view
};

void make_view_rays(Views const& p, RayArrays const& out, Queue const& queue);

int64_t bundles_for(Views const& p);  // of all views, at most

// Of all views, the bundles of the first view first. rays [bundles_for, 32] become those of the result.
Bundles view_bundles(Views const& p, int64_t* rays, Queue const& queue);

// Numbers of Gaussians as all views see them. `bits` of a depth's key.
Looked look_from_views(Views const& p, int bits, Queue const& queue);

struct Looks {
    int64_t most;            // room for H
    uint32_t const* chosen;  // [V N] those that are seen, ascending
    int64_t const* count;    // [1] H; more than `most`: the others are left out
};

// Fills all of `work`, and `rows` [most, row_floats] of what some bundle may meet, nearest first, equal keys by view
// and index; a lidar's lists go by these. Returns the number of each row [most].
uint32_t const* prepare_looks(Views const& p, Looked const& looked, Looks const& looks, BundleParams const& bundles,
                              BundleWork const& work, float* rows, Queue const& queue);

// Whole lists, long ones first.
void render_whole(RenderParams const& p, RenderOutputs const& out, float const* rows, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
