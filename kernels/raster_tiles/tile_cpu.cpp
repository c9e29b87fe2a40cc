// SPDX-License-Identifier: Apache-2.0
// Lists of the Gaussians that each tile looks at, by counting: Gaussians come nearest first, so lists are in that
// order, too.
#include <algorithm>
#include <cmath>

#include "../math/vec.cuh"
#include "tile.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace nurec::cpu {
namespace {

struct Box {
    int64_t x0, x1, y0, y1;  // tiles, inclusive; empty if x1 < x0 or y1 < y0
};

// Each thread takes a run of Gaussians; counts by (tile, thread) give every entry its own place in any order of the
// threads. for_each(box number, function(tile)) calls the function for every tile that a Gaussian is listed in.
template <class ForEach>
void fill_lists(int64_t n, int64_t n_tiles, int64_t const* index, ForEach const& for_each, TileLists& out) {
#ifdef _OPENMP
    int64_t const parts = std::max(1, std::min(omp_get_max_threads(), 16));
#else
    int64_t const parts = 1;
#endif
    std::vector<std::vector<int64_t>> place(parts, std::vector<int64_t>(n_tiles, 0));
    auto const run = [&](int64_t part, auto const& function) {
        for (int64_t i = n * part / parts; i < n * (part + 1) / parts; ++i)
            for_each(i, [&](int64_t tile) { function(tile, i); });
    };
#pragma omp parallel for schedule(static, 1)
    for (int64_t part = 0; part < parts; ++part) run(part, [&](int64_t tile, int64_t) { ++place[part][tile]; });
    out.offsets.assign(n_tiles + 1, 0);
    int64_t total = 0;
    for (int64_t tile = 0; tile < n_tiles; ++tile) {
        for (auto& counts : place) {
            int64_t const count = counts[tile];
            counts[tile] = total;
            total += count;
        }
        out.offsets[tile + 1] = total;
    }
    out.gaussians.resize(total);
#pragma omp parallel for schedule(static, 1)
    for (int64_t part = 0; part < parts; ++part)
        run(part, [&](int64_t tile, int64_t i) { out.gaussians[place[part][tile]++] = index[i]; });
}

int64_t clamped(float a, int64_t low, int64_t high) {
    return a > float(high) ? high : a < float(low) ? low : int64_t(a);
}

// A crowded cell is split into tiles of at most max_rays rays.
std::vector<int64_t> fill_rays(std::vector<int64_t> const& cell, int64_t n_cells, int64_t max_rays, TileLists& out) {
    std::vector<int64_t> count(n_cells, 0), first(n_cells + 1, 0);
    for (int64_t const c : cell) ++count[c];
    int64_t const most = count.empty() ? 1 : *std::max_element(count.begin(), count.end());
    int64_t const width = out.rays_per_tile = std::clamp<int64_t>(most, 1, max_rays);
    for (int64_t c = 0; c < n_cells; ++c) first[c + 1] = first[c] + (count[c] + width - 1) / width;
    out.rays.assign(first[n_cells] * width, -1);
    std::fill(count.begin(), count.end(), 0);
    for (std::size_t r = 0; r < cell.size(); ++r) out.rays[first[cell[r]] * width + count[cell[r]]++] = r;
    return first;
}

// Pixel centres of tile i lie in [tile i + 0.5, tile (i + 1) - 0.5].
TileLists tile_camera(TileParams const& p) {
    int64_t const nx = p.nx(), ny = p.ny();
    auto const size = float(p.tile);
    auto const first = [&](float a, int64_t end) { return clamped(ceilf((a - (size - 0.5f)) / size), 0, end); };
    auto const last = [&](float a, int64_t end) { return clamped(floorf((a - 0.5f) / size), -1, end - 1); };
    TileLists out;
    fill_lists(
        p.v, nx * ny, p.index,
        [&](int64_t i, auto const& function) {
            Box const box = {first(p.low[2 * i], nx), last(p.high[2 * i], nx), first(p.low[2 * i + 1], ny),
                             last(p.high[2 * i + 1], ny)};
            for (int64_t y = box.y0; y <= box.y1; ++y)
                for (int64_t x = box.x0; x <= box.x1; ++x) function(y * nx + x);
        },
        out);
    return out;
}

TileLists tile_lidar(TileParams const& p) {
    TileLists out;
    Cells const& cells = p.cells;
    std::vector<int64_t> const first = fill_rays(cells_of_rays(cells), p.n_cells(), p.max_rays, out);
    int64_t const columns = cells.columns;
    fill_lists(
        p.v, first.back(), p.index,
        [&](int64_t i, auto const& function) {
            int64_t const x0 = column_of(cells, p.low[2 * i]);
            int64_t const x1 = std::min(column_of(cells, p.high[2 * i]), x0 + columns - 1);
            int64_t const y1 = band_of(cells, p.high[2 * i + 1]);
            for (int64_t y = band_of(cells, p.low[2 * i + 1]); y <= y1; ++y) {
                for (int64_t x = x0; x <= x1; ++x) {
                    int64_t const cell = y * columns + ((x % columns) + columns) % columns;
                    for (int64_t copy = first[cell]; copy < first[cell + 1]; ++copy) function(copy);
                }
            }
        },
        out);
    return out;
}

}  // namespace

TileLists tile(TileParams const& p) {
    return p.is_camera ? tile_camera(p) : tile_lidar(p);
}

}  // namespace nurec::cpu
