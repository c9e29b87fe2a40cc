// SPDX-License-Identifier: Apache-2.0
// From a Gaussian's bounds to its candidates, and from their numbers to bundles.
#pragma once

#include "../common/cells.cuh"
#include "../common/triples.cuh"
#include "params.h"

namespace nurec::cuda {

constexpr int BINS = 512;       // of azimuth, in which a lidar's bundles are looked up
constexpr float SPARE = 1e-5f;  // radians: azimuths are rounded

struct Interval {
    int begin, end;
    __device__ int size() const { return end - begin; }
};

struct Span {  // of one row; two intervals where a lidar's goes over the seam at pi
    Interval a, b;
    __device__ int size() const { return a.size() + b.size(); }
    __device__ int at(int k) const { return k < a.size() ? a.begin + k : b.begin + k - a.size(); }
};

__device__ inline int clamped(float a, int low, int high) {
    return a > float(high) ? high : a < float(low) ? low : int(a);
}

// Pixel centres of bundle k lie in [w k + 0.5, w (k + 1) - 0.5].
__device__ inline Candidates in_image(Bundles const& b, Vec2<float> low, Vec2<float> high) {
    Candidates c = {};
    auto const w = float(b.width), h = float(b.height);
    c.column0 = clamped(ceilf((low.x - (w - 0.5f)) / w), 0, b.columns);
    c.columns = clamped(floorf((high.x - 0.5f) / w), -1, b.columns - 1) - c.column0 + 1;
    c.row0 = clamped(ceilf((low.y - (h - 0.5f)) / h), 0, b.rows);
    c.row1 = clamped(floorf((high.y - 0.5f) / h), -1, b.rows - 1);
    if (c.columns <= 0) c.row1 = c.row0 - 1;
    return c;
}

__device__ inline Candidates on_sphere(Bundles const& b, Vec2<float> low, Vec2<float> high) {
    Candidates c = {};
    c.row0 = int(band_of(b.cells, low.y)), c.row1 = int(band_of(b.cells, high.y));
    if (!(low.x <= high.x)) c.row1 = c.row0 - 1;  // what is hidden has bounds that hold nothing
    c.from = wrap_angle(low.x);
    c.to = c.from + smaller(high.x - low.x, float(2 * PI));
    return c;
}

__device__ inline Candidates candidates_of(BundleParams const& p, int64_t i) {
    Vec2<float> const low = load2(p.low, i), high = load2(p.high, i);
    return p.bundles.is_camera ? in_image(p.bundles, low, high) : on_sphere(p.bundles, low, high);
}

__device__ inline int bin_of(float azimuth) {
    return clamped((azimuth + float(PI)) / float(2 * PI) * float(BINS), 0, BINS - 1);
}

// A band's bundles that may have rays from one azimuth to another, both in [-pi, pi].
__device__ inline Interval between(int const* bins, int band, float from, float to) {
    int const* const row = bins + 2 * BINS * band;
    return {row[2 * bin_of(from)], row[2 * bin_of(to) + 1]};
}

// Of a lidar.
__device__ inline Span span_of(Bundles const& b, int const* bins, Candidates const& c, int row) {
    int const begin = b.first[row], end = b.first[row + 1];
    float const pi = float(PI);
    if (c.to - c.from >= 2 * pi - 2 * SPARE) return {{begin, end}, {0, 0}};
    if (c.to <= pi - SPARE && c.from >= -pi + SPARE) {
        Interval const a = between(bins, row, c.from, c.to);
        return {{a.begin, larger(a.begin, a.end)}, {0, 0}};
    }
    int const a = between(bins, row, c.from - SPARE < -pi ? c.from - SPARE + 2 * pi : c.from, pi).begin;
    int const z = between(bins, row, -pi, c.to > pi - SPARE ? c.to - 2 * pi : c.to).end;
    return {{begin, smaller(z, a)}, {a, end}};
}

__device__ inline int count_of(Bundles const& b, int const* bins, Candidates const& c) {
    if (c.row1 < c.row0) return 0;
    if (b.is_camera) return (c.row1 - c.row0 + 1) * c.columns;
    int n = 0;
    for (int row = c.row0; row <= c.row1; ++row) n += span_of(b, bins, c, row).size();
    return n;
}

// The k-th of them; -1 if there are fewer.
__device__ inline int bundle_at(Bundles const& b, int const* bins, Candidates const& c, int k) {
    if (b.is_camera) return (c.row0 + k / c.columns) * b.columns + c.column0 + k % c.columns;
    for (int row = c.row0; row <= c.row1; ++row) {
        Span const span = span_of(b, bins, c, row);
        if (k < span.size()) return span.at(k);
        k -= span.size();
    }
    return -1;
}

}  // namespace nurec::cuda
