// SPDX-License-Identifier: Apache-2.0
// Bundles of 32 neighbouring rays, and the lists of Gaussians that they may meet. An image's bundle has one list, a
// lidar's two, for its lower and its upper beams: of what passes between beams, many fewer rays have an entry in vain.
// All pointers are the device's.
//
// Letters: N Gaussians, V of them visible, R rays, A bundles, P rays of a list, B bands of elevation, L entries of all
// lists.
#pragma once

#include "../common/cells.h"
#include "../common/device.h"
#include "../common/gaussians.h"
#include "../common/lists.h"
#include "../math/ray_pyramid.cuh"
#include "../math/conic.cuh"

struct float4;  // CUDA's

namespace nurec {

constexpr int BUNDLE_RAYS = 32;

constexpr int lists_of_bundle(bool is_camera) {
    return is_camera ? 1 : 2;
}

constexpr int rays_of_list(bool is_camera) {  // P
    return BUNDLE_RAYS / lists_of_bundle(is_camera);
}

// Lists that are next to one another, of an image those of 4 x 4 bundles: entries are sorted by cluster.
constexpr int CLUSTER = 16, CLUSTER_SIDE = 4;
constexpr int CLUSTER_BUNDLES = CLUSTER / lists_of_bundle(false);  // of a lidar
constexpr int64_t MOST_LISTS = int64_t(CLUSTER) << 16;             // of all views: a cluster's number has 16 bits

constexpr int clusters_for(int bundles) {  // in a row or column of so many
    return (bundles + CLUSTER_SIDE - 1) / CLUSTER_SIDE;
}

constexpr int BUNDLE_VECTORS = sizeof(RayPyramid<float>) / 16;
constexpr int BINS = 2048;     // of azimuth, in which a lidar's bundles are looked up
constexpr int BEAM_SLABS = 6;  // of a lidar's bundle (math/ray_pyramid.cuh) at most, half of them of each list

// Of an image, bundles lie in a grid, and are numbered cluster by cluster, row by row in each. Of a lidar, they come by
// band of elevation, and within a band by azimuth; the rays of one by elevation.
struct Bundles {
    int64_t n;            // A
    int64_t const* rays;  // [A, 32], -1 where a bundle has fewer
    bool is_camera;
    int columns, rows, width, height;  // of an image's grid; pixels of a bundle. What completes clusters has no rays
    Cells cells;                       // of a lidar; their columns do not matter
    int const* first;                  // [B + 1] first bundle of a band
    int const* bins;                   // [B, BINS, 2] for each bin of azimuth: the first bundle that reaches
                                       // beyond its begin, and the first that begins beyond its end
    float const* heights;              // [B, 2] radians of elevation between which a band's rays lie

    constexpr int64_t lists() const { return n * lists_of_bundle(is_camera); }
    constexpr int64_t clusters() const { return (lists() + CLUSTER - 1) / CLUSTER; }
    constexpr int clusters_of_image() const { return clusters_for(columns) * clusters_for(rows); }
};

namespace cuda {
struct Candidates;
}

struct BundleParams {
    Gaussians g;
    int64_t v;
    int64_t const* index;          // [V] nearest first; null: lists hold places in this order
    int64_t const* count;          // [1] so many of the V count
    Bounds<float> const* bounds;   // [N] of an image, in its plane
    cuda::Candidates* candidates;  // [N] of a lidar, and how many they are; null: they are in the order of the V, and
    int const* counts;             // yet to be found
    Bundles bundles;
    float const* directions;  // [R, 3] unit
    float const* delays;      // [R] seconds after the Gaussians' time
    bool exact;               // lists leave out what no ray of the bundle meets, though the bounds touch it
    float const* shapes;      // [N, shape_floats] of the V, as nurec_lite::project tells them, without index [V]; null
                              // where lists are not exact. Of a lidar they are what its rays read
    View<float> const* view;  // of a camera
};

namespace cuda {

// Bundles that a lidar's rays fill at most: all full ones, and one more a band.
constexpr int64_t most_bundles(Sweeps const& sweeps) {
    int64_t const bands = sweeps.bands(), n = sweeps.cells.n_rays;
    return n / BUNDLE_RAYS + (bands < n ? bands : n);
}

constexpr int64_t MOST_BANDS = 1 << 12;  // of all sweeps: their number goes into a key's highest 12 bits

// rays [A, 32], first [B + 1], bins [B, BINS, 2] and heights [B, 2] of a lidar, as above, for A = most_bundles. The
// bands of a second sweep follow those of the first.
struct MadeBundles {
    int64_t* rays;
    int *first, *bins;
    float* heights;
};

void bundle_rays(Sweeps const& sweeps, MadeBundles const& out, Queue const& queue);

// What a Gaussian's bounds touch: a rectangle of an image's bundles, or a lidar's in bands of elevation and an interval
// of azimuth. A row is one of an image's grid or a band of a lidar.
struct alignas(16) Candidates {
    int row0, row1;       // inclusive
    float from, to;       // azimuth of a lidar: from in [-pi, pi), to - from at most 2 pi
    uint32_t numbers[4];  // see below
};

// Numbers of an image: its first column, and columns. Of a lidar, two ends each: of its first rows, from row0 on, how
// many candidates lie in each and those before, in 16 bits; MANY where that is not enough.
constexpr int ENDS = 8;
constexpr uint32_t MANY = 0xffff;

// An image's rows of bundles that a Gaussian may meet, and what says which bundles of a row: all columns; its outline,
// in pixels from the first bundle's first; or, where it has none, what was found row by row.
struct alignas(16) ImageRows {
    enum Kind : uint32_t { BOX, ELLIPSE, SPANS } kind;
    int clusters;                         // of the views before
    uint16_t row, column, rows, columns;  // of bundles
    union {
        Outline<float> ellipse;
        int spans;  // the first of `Near`, which has one a row
    };
};
static_assert(sizeof(ImageRows) == 48);

// Gaussians without an outline (math/conic.cuh), a few of a view.
struct Near {
    int64_t room;          // of spans
    int* counts;           // [2] Gaussians, and spans; those that want more than the room have none
    uint32_t* which;       // [V]
    Interval<int>* spans;  // [room] columns of a row
};

// What finding leaves: entries of clusters, and of lists; if words were not enough, as many entries as make them so.
struct Counts {
    int64_t entries;
    unsigned long long listed;
    int64_t enough;

    NUREC_FN int64_t needed() const { return larger(larger(entries, int64_t(listed)), enough); }
};

// A Gaussian's candidates are these bundles of a lidar, in an order of their own, or the rows of an image's clusters
// that have these rows; those of all Gaussians are numbered one after another, and a word is of 32 of them.
struct BundleWork {
    float4* bounds;          // [BUNDLE_VECTORS, A] of a lidar: RayPyramid<float>, see hits.cuh
    BeamSlab<float>* slabs;  // [BEAM_SLABS, A] of a lidar
    Candidates* candidates;  // [V] of a lidar, or [N] as `index` has them
    ImageRows* rows;         // [V] of an image
    Near near;               // of an image
    int64_t* begins;         // [V + 1] a Gaussian's first candidate; the last is the number of all
    int64_t words;           // W that there is room for, enough for all candidates or not; 0: not known yet
    uint32_t* owners;        // [W] the Gaussian that has a word's first candidate
    uint64_t* states;        // [tiles of Gaussians] zeros at first, see look_back.cuh
    unsigned* next;          // [1] likewise: the tile that nobody has
    Zeros zeros;             // for what follows, where its size is known
};

constexpr int WORDS_EACH = 2, WORDS_SHARE = 4;  // candidates that there is room for: 64 a Gaussian, and 8 an entry
constexpr int64_t most_words(int64_t visible, int64_t room) {
    return WORDS_EACH * visible + room / WORDS_SHARE + 1;
}

// Fills `work`, whose `begins` are the caller's. room: entries of all lists; -1: not known yet.
void number_candidates(BundleParams const& p, BundleWork const& work, Queue const& queue);
BundleWork bundle_work(BundleParams const& p, int64_t* begins, int64_t room, Queue const& queue);

// Where it was not known before how many words there would be.
void own_candidates(BundleParams const& p, BundleWork& work, int64_t words, Queue const& queue);

struct ListEntries {
    int64_t room;      // L: where it is too small, some entries are left out, and where it is too large, zeros follow
    int64_t* offsets;  // [lists + 1]
    int* gaussians;    // [L]
};

// needed [1]: entries of all lists; where the words were not enough, more than that or what would make them enough.
void count_entries(BundleParams const& p, BundleWork& work, int64_t* needed, Queue const& queue);
void list_entries(BundleParams const& p, BundleWork& work, ListEntries const& out, int64_t* needed, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
