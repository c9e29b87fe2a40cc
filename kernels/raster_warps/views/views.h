// SPDX-License-Identifier: Apache-2.0
// Several views in one launch a stage: of one lidar, or of cameras with images of one size. Rendering keeps nothing for
// gradients; train.h has the backward pass. All pointers are the device's.
//
// Letters: V views, S static Gaussians and A dynamic ones, N = S + A, H instances: Gaussians as some view sees them, of
// all V N; R rays of all views, P pixels of an image, A warp tiles, L entries of all lists, C features.
#pragma once

#include "../../project/warp_tiles.h"
#include "../../math/view_row.cuh"
#include "../../project/project.h"
#include "../blend/segments.h"
#include "../../appearance/sh.h"

namespace nurec {

// Gaussian i as view v sees it is instance N v + i.
struct ViewedScene {
    Gaussians g;                    // at the first view's time; those at the next one's follow: means [V, A, 3] and so
                                    // on, and `opacities` [S] are those of static Gaussians
    float const* moving_opacities;  // [V, A] 0: it is not there at that time
    float const* frames;            // [V, A, 4] world from node: harmonics are in the axes of the node
    Coefficients<float const> sh;   // [N, S_h, 3]
    int64_t coefficients;           // S_h
    float const* lidar;             // [N, 2] intensity and ray drop
    ViewRow<float> const* rows;     // [V]
    int64_t views;                  // V
};

// The rays of the views in their sensors' frames. The P pixels of a camera are the same in all its views.
struct ViewedRays {
    bool is_camera, alike, moving;  // alike: all rays have the first fraction; moving: they have origins or delays
    bool own;                       // views are of several cameras, so that each brings its pixels, R of all
    bool lenses;                    // some view has a lens of math/lens.cuh
    int64_t n;                      // R
    float const* directions;        // [P, 3] or [R, 3] unit, sensor frame
    float const* fractions;         // [P] or [R] 0 at the start of a view, 1 at its end
    int width, height, tile_width, tile_height;  // of an image and of a warp tile, in pixels
    Sweeps sweeps;                               // of a lidar

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

int64_t warp_tile_count(Views const& p);  // of all views, at most

// Makes the warp tiles of all views, view by view. rays [warp_tile_count, 32] become those of the result.
WarpTiles make_view_tiles(Views const& p, int64_t* rays, Queue const& queue);

// Projects all instances. `bits` of a depth's key.
Visibility project_views(Views const& p, int bits, Queue const& queue);

// The same of cameras, some with a lens of math/lens.cuh (view_project_lens.cu).
void project_through_lenses(Views const& p, Visibility const& out, Queue const& queue);

struct VisibleList {
    int64_t most;            // capacity for H
    uint32_t const* chosen;  // [V N] instances that are seen, ascending
    int64_t const* count;    // [1] H; more than `most`: the others are left out
};

// Fills `work`, and packs `rows` [most, gaussian_row_floats] of the instances that some warp tile may hit, nearest
// first, equal keys by view and index; lists refer to these. numbers [most] become the rows' instances.
void pack_view_rows(Views const& p, Visibility const& visibility, VisibleList const& visible_list,
                    BinParams const& warp_tiles, BinWork const& work, uint32_t* numbers, float* rows,
                    Queue const& queue);

// Blends whole lists, long ones first.
void render_whole(RenderParams const& p, RenderOutputs const& out, float const* rows, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
