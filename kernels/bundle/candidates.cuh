// SPDX-License-Identifier: Apache-2.0
// From a Gaussian's bounds to its candidates, and from their numbers to bundles.
#pragma once

#include "../common/cells.cuh"
#include "../common/launch.cuh"
#include "../common/look_back.cuh"
#include "../common/triples.cuh"
#include "params.h"

namespace nurec::cuda {

constexpr float ANGLE_MARGIN = 1e-5f;   // radians: angles are rounded
constexpr float HEIGHT_MARGIN = 0.05f;  // of what lies between bounds: they are those of a few points

struct Run {  // of bundles
    int begin, end;
    __device__ int size() const { return end - begin; }
};

struct Span {  // of one row; two runs where a lidar's goes over the seam at pi
    Run a, b;
    __device__ int size() const { return a.size() + b.size(); }
    __device__ int at(int k) const { return k < a.size() ? a.begin + k : b.begin + k - a.size(); }
};

__device__ inline int clamped(float a, int low, int high) {
    return a > float(high) ? high : a < float(low) ? low : int(a);
}

// Pixel centres of bundle k lie in [w k + 0.5, w (k + 1) - 0.5].
__device__ inline Candidates in_image(Bundles const& b, Bounds<float> const& at) {
    Vec2<float> const low = {at.low_u, at.low_v}, high = {at.high_u, at.high_v};
    Candidates c = {};
    auto const w = float(b.width), h = float(b.height);
    int const first = clamped(ceilf((low.x - (w - 0.5f)) / w), 0, b.columns);
    int const columns = clamped(floorf((high.x - 0.5f) / w), -1, b.columns - 1) - first + 1;
    c.numbers[0] = uint32_t(first), c.numbers[1] = uint32_t(columns);
    c.row0 = clamped(ceilf((low.y - (h - 0.5f)) / h), 0, b.rows);
    c.row1 = clamped(floorf((high.y - 0.5f) / h), -1, b.rows - 1);
    if (columns <= 0) c.row1 = c.row0 - 1;
    return c;
}

// Bands whose rays it reaches: not those of which it touches no more than the gap to the next.
__device__ inline Candidates on_sphere(Bundles const& b, Bounds<float> const& at) {
    Vec2<float> const low = {at.low_u, at.low_v}, high = {at.high_u, at.high_v};
    Candidates c = {};
    float const margin = HEIGHT_MARGIN * (high.y - low.y) + ANGLE_MARGIN;
    Bands const bands = bands_of(b.cells, low.y, high.y);
    c.row0 = bands.low, c.row1 = bands.high;
    while (c.row0 <= c.row1 && b.heights[2 * c.row0 + 1] < low.y - margin) ++c.row0;
    while (c.row0 <= c.row1 && b.heights[2 * c.row1] > high.y + margin) --c.row1;
    if (!(low.x <= high.x)) c.row1 = c.row0 - 1;  // what is hidden has bounds that hold nothing
    c.from = wrap_angle(low.x);
    c.to = c.from + smaller(high.x - low.x, float(2 * PI));
    return c;
}

__device__ inline int bin_of(float azimuth) {
    return clamped((azimuth + float(PI)) / float(2 * PI) * float(BINS), 0, BINS - 1);
}

// A band's bundles that may have rays from one azimuth to another, both in [-pi, pi].
__device__ inline Run between(int const* bins, int band, float from, float to) {
    int const* const row = bins + 2 * BINS * band;
    return {row[2 * bin_of(from)], row[2 * bin_of(to) + 1]};
}

// Of a lidar: whether it has all azimuths.
__device__ inline bool is_round(Candidates const& c) {
    return c.to - c.from >= float(2 * PI) - 2 * ANGLE_MARGIN;
}

// Whether its interval of azimuth does not go over the seam, as most do not.
__device__ inline bool is_whole(Candidates const& c) {
    return c.to <= float(PI) - ANGLE_MARGIN && c.from >= -float(PI) + ANGLE_MARGIN;
}

// Of a lidar.
__device__ inline Span span_of(Bundles const& b, Candidates const& c, int row) {
    int const begin = b.first[row], end = b.first[row + 1];
    float const pi = float(PI);
    if (is_round(c)) return {{begin, end}, {0, 0}};
    if (is_whole(c)) {
        Run const a = between(b.bins, row, c.from, c.to);
        return {{a.begin, larger(a.begin, a.end)}, {0, 0}};
    }
    int const a = between(b.bins, row, c.from - ANGLE_MARGIN < -pi ? c.from - ANGLE_MARGIN + 2 * pi : c.from, pi).begin;
    int const z = between(b.bins, row, -pi, c.to > pi - ANGLE_MARGIN ? c.to - 2 * pi : c.to).end;
    return {{begin, smaller(z, a)}, {a, end}};
}

__device__ inline Candidates no_candidates() {
    return {0, -1, 0, 0, {}};
}

__device__ inline uint32_t end_of(Candidates const& c, int k) {
    return c.numbers[k / 2] >> (16 * (k % 2)) & MANY;
}

// Of a whole one; leaves the ends of the first rows, and for rows that there are not the end of the last.
__device__ inline int count_whole(Bundles const& b, Candidates& c) {
    int const from = 2 * bin_of(c.from), to = 2 * bin_of(c.to) + 1;
    int n = 0, row = c.row0;
    int const* bins = b.bins + 2 * BINS * row;
    auto const own = [&] { return larger(bins[to] - bins[from], 0); };
#pragma unroll
    for (int k = 0; k < ENDS; ++k, ++row, bins += 2 * BINS) {
        if (row <= c.row1) n += own();
        c.numbers[k / 2] |= smaller(uint32_t(n), MANY) << (16 * (k % 2));
    }
    for (; row <= c.row1; ++row, bins += 2 * BINS) n += own();
    return n;
}

// Of any other, whose candidates are found by a walk along all rows.
__device__ inline int count_parted(Bundles const& b, Candidates& c) {
    int n = 0;
    for (int row = c.row0; row <= c.row1; ++row) n += span_of(b, c, row).size();
#pragma unroll
    for (uint32_t& two : c.numbers) two = MANY << 16 | MANY;
    return n;
}

// Once, of a lidar: it leaves in `c` what its candidates are found by.
__device__ inline int count_of(Bundles const& b, Candidates& c) {
    if (c.row1 < c.row0) return 0;
    return is_whole(c) ? count_whole(b, c) : count_parted(b, c);
}

// A warp says together which words begin with candidates of its Gaussians, lane by lane: one may have all of them.
__device__ inline void own_words(BundleWork const& work, int64_t i, int64_t mine, int64_t mine_end) {
    for (unsigned left = __ballot_sync(ALL_LANES, (mine + 31) / 32 * 32 < mine_end); left; left &= left - 1) {
        int const lane = __ffs(int(left)) - 1;
        int64_t const begin = __shfl_sync(ALL_LANES, mine, lane), end = __shfl_sync(ALL_LANES, mine_end, lane);
        int64_t word = (begin + 31) / 32 + threadIdx.x % 32;
        for (; 32 * word < end && word < work.words; word += 32)
            work.owners[word] = uint32_t(i - threadIdx.x % 32 + lane);
    }
}

// Of a tile's Gaussians a thread has EACH, 32 apart: the first of them.
template <int EACH>
__device__ int64_t first_of_thread(int64_t tile) {
    int const lane = int(threadIdx.x) % 32;
    return EACH * (THREADS * tile + int(threadIdx.x) - lane) + lane;
}

// By a block together: a thread's Gaussians have n candidates each, or there are no such Gaussians.
template <int EACH>
__device__ void number(BundleWork const& work, int64_t v, int64_t tile, int const (&n)[EACH]) {
    int64_t const first = first_of_thread<EACH>(tile);
    WarpOffsets places[EACH];
#pragma unroll
    for (int k = 0; k < EACH; ++k) places[k] = warp_offsets(k ? places[k - 1].all : 0, n[k]);
    int64_t const begin = warp_offset<THREADS / 32>(work.states, tile, unsigned(places[EACH - 1].all));
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        int64_t const i = first + 32 * k, mine = begin + places[k].mine;
        if (i <= v) work.begins[i] = mine;
        if (work.words) own_words(work, i, mine, mine + n[k]);
    }
}

// Of a lidar: a row, and how many candidates lie in the rows before it.
struct RowOf {
    int row, before;
};

// The row of the k-th of them, which ends before the last of the ends: by halves, as ends grow.
__device__ inline RowOf row_of(Candidates const& c, uint32_t k) {
    static_assert(ENDS == 8);
    bool const second = k >= end_of(c, 3);
    uint32_t const low = second ? c.numbers[2] : c.numbers[0], high = second ? c.numbers[3] : c.numbers[1];
    bool const later = k >= low >> 16;
    uint32_t const pair = later ? high : low, end = pair & MANY;
    uint32_t const before = later ? low >> 16 : second ? end_of(c, 3) : 0;
    bool const behind = k >= end;
    return {c.row0 + 4 * second + 2 * later + behind, int(behind ? end : before)};
}

constexpr int NONE = -1, WALK = -2;  // no bundles: there is none; it takes a walk along rows to find it

// Most candidates of a lidar lie in one of the first rows, in an interval that does not go over the seam. Those of what
// is near the sensor are all bundles of its rows.
__device__ inline int near_bundle(Bundles const& b, Candidates const& c, int k) {
    if (is_round(c)) return b.first[c.row0] + k;
    if (!is_whole(c) || uint32_t(k) >= end_of(c, ENDS - 1)) return WALK;
    RowOf const at = row_of(c, uint32_t(k));
    return b.bins[2 * (BINS * at.row + bin_of(c.from))] + k - at.before;
}

// Any other; NONE if there are fewer.
__device__ inline int far_bundle(Bundles const& b, Candidates const& c, int k) {
    uint32_t const end = end_of(c, ENDS - 1);
    bool const later = end < MANY && uint32_t(k) >= end;
    RowOf at = {c.row0 + (later ? ENDS : 0), later ? int(end) : 0};
    for (; at.row <= c.row1; ++at.row) {
        Span const span = span_of(b, c, at.row);
        if (k - at.before < span.size()) return span.at(k - at.before);
        at.before += span.size();
    }
    return NONE;
}

}  // namespace nurec::cuda
