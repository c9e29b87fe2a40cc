// SPDX-License-Identifier: Apache-2.0
// What the tests of a candidate leave of it, and how that is written: a lidar's bundle, or a row of an image's
// clusters.
#pragma once

#include "../common/look_back.cuh"
#include "../render_parts/part_rows.cuh"
#include "clusters.cuh"
#include "image_rows.cuh"
#include "search.cuh"

namespace nurec::cuda {

// First a candidate, then what the test leaves of it, entries of neighbouring clusters. `what`: of a lidar the bundle,
// of an image the candidate's number among its Gaussian's; then the first cluster.
template <bool CAMERA>
struct Hit {
    uint32_t gaussian, what;
    uint32_t lists;  // of a lidar: those of the cluster, a bit each; 0: no hit
};

template <>
struct Hit<true> {
    uint32_t gaussian, what;
    int clusters;                             // 0: no hit
    Interval<int16_t> columns[CLUSTER_SIDE];  // of bundles that each row meets, from the first cluster's first on
};

// Numbers of bundles lie 16 bytes of each side by side, as do slabs: most lanes have bundles next to one another.
__device__ inline RayPyramid<float> bundle_at(float4 const* bounds, uint32_t n, uint32_t k) {
    RayPyramid<float> bundle;
#pragma unroll
    for (int q = 0; q < BUNDLE_VECTORS; ++q) reinterpret_cast<float4*>(&bundle)[q] = bounds[n * unsigned(q) + k];
    return bundle;
}

// By vectors, as most lanes read what their neighbours do.
__device__ inline PartRow<true, 2> row_at(float const* rows, uint32_t gaussian) {
    constexpr unsigned VECTORS = sizeof(PartRow<true, 2>) / 16;
    PartRow<true, 2> row;
#pragma unroll
    for (unsigned q = 0; q < VECTORS; ++q)
        reinterpret_cast<float4*>(&row)[q] = reinterpret_cast<float4 const*>(rows)[VECTORS * gaussian + q];
    return row;
}

// Of the lists of a lidar's bundle, those whose rays it may meet.
__device__ inline uint32_t lists_met(BundleParams const& p, BundleWork const& work, uint32_t gaussian,
                                     uint32_t bundle) {
    constexpr uint32_t BOTH = 3;
    auto const n = uint32_t(p.bundles.n);
    RayPyramid<float> const b = bundle_at(work.bounds, n, bundle);
    if (!p.exact) return b.known > 0 ? BOTH : 0;
    GroupTest<float> const f = group_test(row_at(p.shapes, gaussian).frame, b);
    if (b.known > 1) return BOTH;
    if (!(b.known > 0) || f.ahead < 0) return 0;
    uint32_t met = 0;
    BeamSlab<float> next = work.slabs[bundle];
#pragma unroll
    for (int k = 0; k < BEAM_SLABS; ++k) {
        BeamSlab<float> const slab = next;
        if (k + 1 < BEAM_SLABS) next = work.slabs[n * unsigned(k + 1) + bundle];
        if (may_hit(f, slab)) met |= 1u << (2 * k / BEAM_SLABS);
    }
    return met;
}

// Of a lidar. A Gaussian's bundles of a cluster come one after another: the first lane of them has the entry of all.
__device__ inline Hit<false> joined(Hit<false> const& hit, uint32_t lists) {
    int const lane = int(threadIdx.x) % 32;
    uint32_t const cluster = hit.what / CLUSTER_BUNDLES;
    bool const other_gaussian = __shfl_up_sync(ALL_LANES, hit.gaussian, 1) != hit.gaussian;
    bool const other_cluster = __shfl_up_sync(ALL_LANES, cluster, 1) != cluster;
    bool const first = lane == 0 || other_gaussian || other_cluster;
    unsigned const later = __ballot_sync(ALL_LANES, first) & ~((2u << lane) - 1);
    int const end = later ? __ffs(int(later)) - 1 : 32;
    uint32_t all = lists << 2 * (hit.what % CLUSTER_BUNDLES);
#pragma unroll
    for (int step = 1; step < CLUSTER_BUNDLES; step *= 2) {
        uint32_t const other = __shfl_down_sync(ALL_LANES, all, step);
        if (lane + step < end) all |= other;
    }
    return {hit.gaussian, cluster, first ? all : 0};
}

__device__ inline Hit<false> tested(BundleParams const& p, BundleWork const& work, Hit<false> const& hit) {
    return joined(hit, hit.lists ? lists_met(p, work, hit.gaussian, hit.what) : 0);
}

// Columns of an image that a Gaussian meets in a cluster's rows, and in any of them.
struct MetRows {
    Interval<int> of[CLUSTER_SIDE], all;
};

// `first`: the first of these rows, among the Gaussian's.
__device__ inline MetRows rows_met(BundleParams const& p, BundleWork const& work, ImageRows const& rows, int first) {
    MetRows met = {{}, {1 << 16, -1}};
#pragma unroll
    for (int k = 0; k < CLUSTER_SIDE; ++k) {
        bool const there = first + k >= 0 && first + k < rows.rows;
        met.of[k] = there ? bundles_met(p.bundles, work.near, rows, first + k) : Interval<int>{1, 0};
        if (met.of[k].low <= met.of[k].high)
            met.all = {smaller(met.all.low, met.of[k].low), larger(met.all.high, met.of[k].high)};
    }
    return met;
}

// Of an image: what a row of clusters meets.
__device__ inline Hit<true> tested(BundleParams const& p, BundleWork const& work, Hit<true> const& hit) {
    Hit<true> found = {};
    if (!hit.clusters) return found;
    ImageRows const rows = work.rows[hit.gaussian];
    int const row = rows.row / CLUSTER_SIDE + int(hit.what);
    MetRows const met = rows_met(p, work, rows, CLUSTER_SIDE * row - rows.row);
    if (met.all.low > met.all.high) return found;
    int const begin = (rows.column + met.all.low) / CLUSTER_SIDE, end = (rows.column + met.all.high) / CLUSTER_SIDE + 1;
    int const from = CLUSTER_SIDE * begin - rows.column;
#pragma unroll
    for (int k = 0; k < CLUSTER_SIDE; ++k)
        found.columns[k] = {int16_t(met.of[k].low - from), int16_t(met.of[k].high - from)};
    found.gaussian = listed_as(p, hit.gaussian), found.clusters = end - begin;
    found.what = uint32_t(rows.clusters + row * clusters_for(p.bundles.columns) + begin);
    return found;
}

struct Found {
    int entries, listed;  // of clusters, and of lists
};

__device__ inline Found found_of(Hit<false> const& hit) {
    return {hit.lists != 0, __popc(hit.lists)};
}

__device__ inline Found found_of(Hit<true> const& hit) {
    if (!hit.clusters) return {};
    int listed = 0;
#pragma unroll
    for (auto const& row : hit.columns) listed += larger(row.high - row.low + 1, 0);
    return {hit.clusters, listed};
}

// Lists of the k-th cluster that a row of clusters meets.
__device__ inline uint32_t lists_in(Hit<true> const& hit, int k) {
    uint32_t lists = 0;
#pragma unroll
    for (int row = 0; row < CLUSTER_SIDE; ++row) {
        int const low = larger(hit.columns[row].low - CLUSTER_SIDE * k, 0),
                  high = smaller(hit.columns[row].high - CLUSTER_SIDE * k, CLUSTER_SIDE - 1);
        if (low <= high) lists |= ((2u << high) - (1u << low)) << CLUSTER_SIDE * row;
    }
    return lists;
}

__device__ inline void write_entry(ClusterEntries const& out, int64_t at, uint32_t cluster, uint32_t lists,
                                   uint32_t gaussian) {
    if (at < out.room) out.lists[at] = cluster << CLUSTER | lists, out.gaussians[at] = gaussian;
}

// Both write those of a word from `at` on, and return where the next word's begin.
__device__ inline int64_t write_word(Hit<false> const (&hits)[32], ClusterEntries const& out, int64_t at) {
    Hit<false> const& hit = hits[threadIdx.x % 32];
    unsigned const all = __ballot_sync(ALL_LANES, hit.lists != 0), lower = (1u << threadIdx.x % 32) - 1;
    if (hit.lists) write_entry(out, at + __popc(all & lower), hit.what, hit.lists, hit.gaussian);
    return at + __popc(all);
}

// Lanes take one entry after another, whoever's it is, so that neighbours are written together.
__device__ inline int64_t write_word(Hit<true> const (&hits)[32], ClusterEntries const& out, int64_t at) {
    WarpOffsets const place = warp_offsets(at, hits[threadIdx.x % 32].clusters);
    int const before = int(place.mine - at), n = int(place.all - at);
    for (int first = 0; first < n; first += 32) {
        int const e = first + int(threadIdx.x % 32), owner = lanes_up_to(e, before) - 1;
        int const k = e - __shfl_sync(ALL_LANES, before, owner);
        Hit<true> const& hit = hits[owner];
        if (e < n) write_entry(out, at + e, hit.what + uint32_t(k), lists_in(hit, k), hit.gaussian);
    }
    return place.all;
}

}  // namespace nurec::cuda
