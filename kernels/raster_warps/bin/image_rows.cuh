// SPDX-License-Identifier: Apache-2.0
// The rows of an image's warp tiles that a Gaussian may hit, and the columns of each row.
#pragma once

#include "../../common/gaussians.cuh"
#include "../../math/conic.cuh"
#include "../../project/candidates.cuh"

namespace nurec::cuda {

// A Gaussian as a view sees it.
struct InView {
    Vec3<float> mean;
    Quat<float> q;
    Vec3<float> s, v;
    float reach;
};

__device__ inline InView in_view(Gaussians const& g, int64_t i, float opacity) {
    return {mean_of(g, i), quat_of(g, i), load3(g.scales, i), velocity_of(g, i), reach_of(opacity)};
}

__device__ inline Outline<float> outline_of(View<float> const& view, InView const& g) {
    return outline_of(view, g.mean, g.q, g.s, g.v, g.reach);
}

__device__ inline int rows_of(Candidates const& c) {
    return c.row1 < c.row0 ? 0 : c.row1 - c.row0 + 1;
}

// Returns the number of rows of super-tiles.
__device__ inline int super_tile_rows_of(Candidates const& c) {
    return c.row1 < c.row0 ? 0 : c.row1 / SUPER_TILE_SIDE - c.row0 / SUPER_TILE_SIDE + 1;
}

// Returns the rows and columns that the bounds touch, within the view.
__device__ inline ImageRows boxed(Candidates const& c) {
    ImageRows rows;
    rows.kind = ImageRows::BOX, rows.super_tiles = 0;
    rows.row = uint16_t(c.row0), rows.column = uint16_t(c.numbers[0]);
    rows.rows = uint16_t(rows_of(c)), rows.columns = uint16_t(c.numbers[1]);
    return rows;
}

// Returns the same with the outline; fewer rows if the outline is lower than the bounds.
__device__ inline ImageRows outlined(WarpTiles const& b, Candidates& c, Outline<float> o) {
    auto const h = float(b.height), far = o.half + o.margin;
    c.row0 = larger(c.row0, clamped(ceilf((o.v - far - (h - 0.5f)) / h), 0, b.rows));
    c.row1 = smaller(c.row1, clamped(floorf((o.v + far - 0.5f) / h), -1, b.rows - 1));
    ImageRows rows = boxed(c);
    o.u -= float(b.width * int(c.numbers[0])) + 0.5f, o.v -= float(b.height * c.row0) + 0.5f;
    rows.kind = ImageRows::ELLIPSE, rows.ellipse = o;
    return rows;
}

// Returns the rows of a Gaussian without an outline, and registers it in `near` as `which`; its columns are found
// later.
__device__ inline ImageRows without_outline(Candidates const& c, View<float> const& view, NearPlaneCases const& near,
                                            uint32_t which) {
    ImageRows rows = boxed(c);
    int const n = rows_of(c);
    if (view.camera.bends()) return rows;
    int const begin = atomicAdd(near.counts + 1, n);
    if (begin < 0 || begin + n > near.capacity) return rows;
    near.which[atomicAdd(near.counts, 1)] = which;
    rows.kind = ImageRows::MAX_NEAR_PLANE_SPANS, rows.spans = begin;
    return rows;
}

// Returns the rows of a Gaussian, by its outline if it has one. Shrinks its candidates if the outline is lower.
__device__ inline ImageRows rows_within(WarpTiles const& b, Candidates& c, Outline<float> const& o,
                                        View<float> const& view, NearPlaneCases const& near, uint32_t which) {
    return o.known > 0 ? outlined(b, c, o) : without_outline(c, view, near, which);
}

// Returns the fractions of the view when pixels of a rectangle are read.
__device__ inline Interval<double> read_within(CameraModel<double> const& camera, Vec2<double> corner,
                                               Vec2<double> size) {
    double const a = camera.fraction(corner.x, corner.y), b = camera.fraction(corner.x + size.x, corner.y + size.y);
    return {clamp01(smaller(a, b)), clamp01(larger(a, b))};
}

__device__ inline Interval<int> columns_of(WarpTiles const& b, Interval<float> pixels, int columns) {
    auto const w = float(b.width);
    return {clamped(ceilf((pixels.low - (w - 1)) / w), 0, columns), clamped(floorf(pixels.high / w), -1, columns - 1)};
}

// Copies a view to shared memory in double precision. All threads of a block call it.
__device__ inline void copy_view(View<double>& to, View<float> const& from) {
    constexpr unsigned N = sizeof(View<float>) / sizeof(float);
    static_assert(sizeof(View<double>) == N * sizeof(double));
    for (unsigned k = threadIdx.x; k < N; k += blockDim.x)
        reinterpret_cast<double*>(&to)[k] = reinterpret_cast<float const*>(&from)[k];
}

__device__ inline Vec3<double> doubled(Vec3<float> a) {
    return {a.x, a.y, a.z};
}

__device__ inline Conic<double> conic_of(View<double> const& view, InView const& g, Vec2<double> corner,
                                         Vec2<double> size) {
    Quat<double> const q = {g.q.w, g.q.x, g.q.y, g.q.z};
    return conic_of(view, doubled(g.mean), q, doubled(g.s), doubled(g.v), double(g.reach), corner, size,
                    read_within(view.camera, corner, size));
}

// Returns the columns of the k-th row of a Gaussian without an outline.
__device__ inline Interval<int> near_span(WarpTiles const& b, View<double> const& view, InView const& g,
                                          ImageRows const& rows, int k) {
    int const columns = int(rows.columns);
    Vec2<double> const corner = {rows.column * b.width + 0.5, (rows.row + k) * b.height + 0.5};
    Vec2<double> const size = {double(b.width * columns - 1), double(b.height - 1)};
    Interval<double> const intersected = columns_within(conic_of(view, g, corner, size), 0., size.y, size.x);
    return columns_of(b, {float(intersected.low), float(intersected.high)}, columns);
}

// Returns the columns that are hit in the k-th row, from its first column on.
__device__ inline Interval<int> intersected_columns(WarpTiles const& b, NearPlaneCases const& near,
                                                    ImageRows const& rows, int k) {
    if (rows.kind == ImageRows::BOX) return {0, int(rows.columns) - 1};
    if (rows.kind == ImageRows::MAX_NEAR_PLANE_SPANS) return near.spans[rows.spans + k];
    float const top = float(b.height * k), bottom = top + float(b.height - 1);
    return columns_of(b, columns_within(rows.ellipse, top, bottom), int(rows.columns));
}

}  // namespace nurec::cuda
