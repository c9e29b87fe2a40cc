// SPDX-License-Identifier: Apache-2.0
// Candidates of a Gaussian from its bounds, and the warp tile of a candidate's number.
#pragma once

#include "../common/cells.cuh"
#include "../common/launch.cuh"
#include "../common/look_back.cuh"
#include "../common/triples.cuh"
#include "warp_tiles.h"

namespace nurec::cuda {

constexpr float ANGLE_MARGIN = 1e-5f;   // radians: angles are rounded
constexpr float HEIGHT_MARGIN = 0.05f;  // share of the distance between bounds, which come from a few points

// Returns the number of visible Gaussians.
__device__ inline int64_t end_of_visible(BinParams const& p) {
    return p.count ? smaller(p.v, *p.count) : p.v;
}

struct TileRun {  // of warp tiles
    int begin, end;
    __device__ int size() const { return end - begin; }
};

struct RowSpan {  // of one row; two runs where a lidar's goes over the seam at pi
    TileRun a, b;
    __device__ int size() const { return a.size() + b.size(); }
    __device__ int at(int k) const { return k < a.size() ? a.begin + k : b.begin + k - a.size(); }
};

__device__ inline int clamped(float a, int low, int high) {
    return a > float(high) ? high : a < float(low) ? low : int(a);
}

// Pixel centres of warp tile k lie in [w k + 0.5, w (k + 1) - 0.5].
__device__ inline Candidates image_candidates(WarpTiles const& b, Bounds<float> const& at) {
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

// Returns the bands with rays that the bounds reach. A band is left out if the bounds touch only the gap to the next
// one.
__device__ inline Candidates sweep_candidates(WarpTiles const& b, Bounds<float> const& at) {
    Vec2<float> const low = {at.low_u, at.low_v}, high = {at.high_u, at.high_v};
    Candidates c = {};
    float const margin = HEIGHT_MARGIN * (high.y - low.y) + ANGLE_MARGIN;
    Bands const bands = bands_of(b.cells, low.y, high.y);
    c.row0 = bands.low, c.row1 = bands.high;
    while (c.row0 <= c.row1 && b.heights[2 * c.row0 + 1] < low.y - margin) ++c.row0;
    while (c.row0 <= c.row1 && b.heights[2 * c.row1] > high.y + margin) --c.row1;
    if (!(low.x <= high.x)) c.row1 = c.row0 - 1;  // a hidden Gaussian has empty bounds
    c.from = wrap_angle(low.x);
    c.to = c.from + smaller(high.x - low.x, float(2 * PI));
    return c;
}

__device__ inline int bin_of(float azimuth) {
    return clamped((azimuth + float(PI)) / float(2 * PI) * float(AZIMUTH_BINS), 0, AZIMUTH_BINS - 1);
}

// A band's warp tiles that may have rays from one azimuth to another, both in [-pi, pi].
__device__ inline TileRun between(int const* bins, int band, float from, float to) {
    int const* const row = bins + 2 * AZIMUTH_BINS * band;
    return {row[2 * bin_of(from)], row[2 * bin_of(to) + 1]};
}

// Returns whether the candidates of a lidar cover all azimuths.
__device__ inline bool covers_circle(Candidates const& c) {
    return c.to - c.from >= float(2 * PI) - 2 * ANGLE_MARGIN;
}

// Returns whether the interval of azimuth does not cross the seam at pi. Most do not.
__device__ inline bool is_unwrapped(Candidates const& c) {
    return c.to <= float(PI) - ANGLE_MARGIN && c.from >= -float(PI) + ANGLE_MARGIN;
}

// Returns the warp tiles of one row of a lidar.
__device__ inline RowSpan span_of(WarpTiles const& b, Candidates const& c, int row) {
    int const begin = b.first[row], end = b.first[row + 1];
    float const pi = float(PI);
    if (covers_circle(c)) return {{begin, end}, {0, 0}};
    if (is_unwrapped(c)) {
        TileRun const a = between(b.bins, row, c.from, c.to);
        return {{a.begin, larger(a.begin, a.end)}, {0, 0}};
    }
    int const a = between(b.bins, row, c.from - ANGLE_MARGIN < -pi ? c.from - ANGLE_MARGIN + 2 * pi : c.from, pi).begin;
    int const z = between(b.bins, row, -pi, c.to > pi - ANGLE_MARGIN ? c.to - 2 * pi : c.to).end;
    return {{begin, smaller(z, a)}, {a, end}};
}

__device__ inline Candidates empty_candidates() {
    return {0, -1, 0, 0, {}};
}

__device__ inline uint32_t end_of(Candidates const& c, int k) {
    return c.numbers[k / 2] >> (16 * (k % 2)) & COUNT_OVERFLOW;
}

// Counts the candidates of an interval that does not cross the seam, and stores the ends of the first rows.
__device__ inline int count_unwrapped(WarpTiles const& b, Candidates& c) {
    int const from = 2 * bin_of(c.from), to = 2 * bin_of(c.to) + 1;
    int n = 0, row = c.row0;
    int const* bins = b.bins + 2 * AZIMUTH_BINS * row;
    auto const own = [&] { return larger(bins[to] - bins[from], 0); };
#pragma unroll
    for (int k = 0; k < ROW_ENDS; ++k, ++row, bins += 2 * AZIMUTH_BINS) {
        if (row <= c.row1) n += own();
        c.numbers[k / 2] |= smaller(uint32_t(n), COUNT_OVERFLOW) << (16 * (k % 2));
    }
    for (; row <= c.row1; ++row, bins += 2 * AZIMUTH_BINS) n += own();
    return n;
}

// Counts the candidates of any other interval; they are found later by a search along its rows.
__device__ inline int count_wrapped(WarpTiles const& b, Candidates& c) {
    int n = 0;
    for (int row = c.row0; row <= c.row1; ++row) n += span_of(b, c, row).size();
#pragma unroll
    for (uint32_t& two : c.numbers) two = COUNT_OVERFLOW << 16 | COUNT_OVERFLOW;
    return n;
}

// Counts the candidates of a lidar, and stores their location in `c`.
__device__ inline int count_candidates(WarpTiles const& b, Candidates& c) {
    if (c.row1 < c.row0) return 0;
    return is_unwrapped(c) ? count_unwrapped(b, c) : count_wrapped(b, c);
}

// Stores the first Gaussian of each batch. A warp takes its lanes' Gaussians one by one: one may own all batches.
__device__ inline void assign_batches_of(BinWork const& work, int64_t i, int64_t mine, int64_t mine_end) {
    for (unsigned left = __ballot_sync(ALL_LANES, (mine + 31) / 32 * 32 < mine_end); left; left &= left - 1) {
        int const lane = __ffs(int(left)) - 1;
        int64_t const begin = __shfl_sync(ALL_LANES, mine, lane), end = __shfl_sync(ALL_LANES, mine_end, lane);
        int64_t batch = (begin + 31) / 32 + threadIdx.x % 32;
        for (; 32 * batch < end && batch < work.batches; batch += 32)
            work.batch_first_gaussian[batch] = uint32_t(i - threadIdx.x % 32 + lane);
    }
}

// Returns the first Gaussian of a thread. A thread has EACH of a tile's Gaussians, 32 apart.
template <int EACH>
__device__ int64_t first_of_thread(int64_t tile) {
    int const lane = int(threadIdx.x) % 32;
    return EACH * (THREADS * tile + int(threadIdx.x) - lane) + lane;
}

// Numbers the candidates of a tile's Gaussians (look_back.cuh). All threads of a block call it; a thread's Gaussians
// have n candidates each.
template <int EACH>
__device__ void number(BinWork const& work, int64_t v, int64_t tile, int const (&n)[EACH]) {
    int64_t const first = first_of_thread<EACH>(tile);
    WarpOffsets places[EACH];
#pragma unroll
    for (int k = 0; k < EACH; ++k) places[k] = warp_offsets(k ? places[k - 1].all : 0, n[k]);
    int64_t const begin = warp_offset<THREADS / 32>(work.states, tile, unsigned(places[EACH - 1].all));
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        int64_t const i = first + 32 * k, mine = begin + places[k].mine;
        if (i <= v) work.begins[i] = mine;
        if (work.batches) assign_batches_of(work, i, mine, mine + n[k]);
    }
}

// A row of a lidar, and the number of candidates in the rows before it.
struct RowOf {
    int row, before;
};

// Returns the row of the k-th candidate by bisection over the row ends; k is less than the last end.
__device__ inline RowOf row_of(Candidates const& c, uint32_t k) {
    static_assert(ROW_ENDS == 8);
    bool const second = k >= end_of(c, 3);
    uint32_t const low = second ? c.numbers[2] : c.numbers[0], high = second ? c.numbers[3] : c.numbers[1];
    bool const later = k >= low >> 16;
    uint32_t const pair = later ? high : low, end = pair & COUNT_OVERFLOW;
    uint32_t const before = later ? low >> 16 : second ? end_of(c, 3) : 0;
    bool const behind = k >= end;
    return {c.row0 + 4 * second + 2 * later + behind, int(behind ? end : before)};
}

constexpr int NO_TILE = -1, SEARCH_ROWS = -2;  // not warp tiles: there is none; find_tile_by_rows finds it

// Returns the warp tile of a candidate where that takes few steps: in the first rows of an interval that does not cross
// the seam, or if the Gaussian is near the sensor and covers all azimuths. SEARCH_ROWS: use find_tile_by_rows.
__device__ inline int find_tile_fast(WarpTiles const& b, Candidates const& c, int k) {
    if (covers_circle(c)) return b.first[c.row0] + k;
    if (!is_unwrapped(c) || uint32_t(k) >= end_of(c, ROW_ENDS - 1)) return SEARCH_ROWS;
    RowOf const at = row_of(c, uint32_t(k));
    return b.bins[2 * (AZIMUTH_BINS * at.row + bin_of(c.from))] + k - at.before;
}

// Returns the warp tile of any candidate by a search along rows; NO_TILE if there are fewer candidates.
__device__ inline int find_tile_by_rows(WarpTiles const& b, Candidates const& c, int k) {
    uint32_t const end = end_of(c, ROW_ENDS - 1);
    bool const later = end < COUNT_OVERFLOW && uint32_t(k) >= end;
    RowOf at = {c.row0 + (later ? ROW_ENDS : 0), later ? int(end) : 0};
    for (; at.row <= c.row1; ++at.row) {
        RowSpan const span = span_of(b, c, at.row);
        if (k - at.before < span.size()) return span.at(k - at.before);
        at.before += span.size();
    }
    return NO_TILE;
}

}  // namespace nurec::cuda
