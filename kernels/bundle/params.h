// SPDX-License-Identifier: Apache-2.0
// Bundles of 32 neighbouring rays, one warp each, and the lists of Gaussians that they may meet. All pointers are the
// device's.
//
// Letters: N Gaussians, V of them visible, R rays, A bundles, B bands of elevation, L entries of all lists.
#pragma once

#include "../common/cells.h"
#include "../common/device.h"
#include "../common/gaussians.h"
#include "../common/lists.h"
#include "../math/bundle.cuh"

namespace nurec {

constexpr int BUNDLE_RAYS = 32;

// Of an image, bundles lie in a grid: rows of `columns` bundles. Of a lidar, in bands of elevation, and within a band
// by azimuth.
struct Bundles {
    int64_t n;            // A
    int64_t const* rays;  // [A, 32], -1 where a bundle has fewer
    bool is_camera;
    int columns, rows, width, height;  // of an image's grid; pixels of a bundle
    Cells cells;                       // of a lidar; their columns do not matter
    int const* first;                  // [B + 1] first bundle of a band
    float const* azimuths;             // [A, 2] lowest and highest of a bundle
};

struct BundleParams {
    Gaussians g;
    int64_t v;
    int64_t const* index;  // [V] nearest first
    float const* low;      // [V, 2] bounds in the sensor's plane
    float const* high;     // [V, 2]
    Bundles bundles;
    float const* origins;     // [R, 3] metres, relative to the centre
    float const* directions;  // [R, 3] unit
    float const* delays;      // [R] seconds after the Gaussians' time
    bool exact;               // lists leave out what no ray of the bundle meets, though the bounds touch it
};

namespace cuda {

// Bundles that a lidar's rays fill at most: all full ones, and one more a band.
constexpr int64_t most_bundles(Cells const& cells) {
    return cells.n_rays / BUNDLE_RAYS + (cells.bands < cells.n_rays ? cells.bands : cells.n_rays);
}

// rays [A, 32], first [B + 1] and azimuths [A, 2] of a lidar, as above, for A = most_bundles.
void bundle_rays(Cells const& cells, int64_t* rays, int* first, float* azimuths, Queue const& queue);

// What counting leaves for listing.
struct BundleWork {
    Bundle<float>* bounds;  // [A]
    Bundle<float>* runs;    // [A / RUN and one more a row] of runs of bundles
    int* bins;              // [B, BINS, 2] of a lidar, see candidates.cuh
    uint32_t* hits;         // [V] a bit a candidate, of Gaussians with few
    uint32_t* some;         // [V] Gaussians with more,
    uint32_t* many;         // [V] with very many,
    int* counters;          // [2] how many of these there are
    int* used;              // [V] entries written, of those with very many
};

BundleWork bundle_work(BundleParams const& p, Queue const& queue);

// counts [V + 1]: places of the Gaussians' entries; the last is the number of all.
void count_bundle_entries(BundleParams const& p, BundleWork const& work, int64_t* counts, Queue const& queue);
void list_bundle_entries(BundleParams const& p, BundleWork const& work, int64_t const* counts, Entries const& out,
                         Queue const& queue);

}  // namespace cuda
}  // namespace nurec
