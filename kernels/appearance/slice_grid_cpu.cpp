// SPDX-License-Identifier: Apache-2.0
// Pixels add to the same few cells, so slices of rows have grids of their own, which are added in their order: the
// number of threads changes nothing.
#include <algorithm>
#include <vector>

#include "../common/triples_cpu.h"
#include "slice_grid.h"

namespace nurec::cpu {
namespace {

constexpr int SLICES = 16;  // at most

void backward(GridImage const& in, GridGrads const& d, int64_t begin, int64_t end, float* grid) {
    for (int64_t i = begin; i < end; ++i) {
        Vec3<float> const colour = load(in.image, i), got = load(d.sliced, i);
        GridCell<float> const at = in.cell(i, colour);
        store(d.image, i, sliced_backward(in.grid, in.shape, at, colour, got));
        for (int corner = 0; corner < GRID_CORNERS; ++corner) {
            float* const cell = grid + at.cell(corner, in.shape);
            for (int k = 0; k < GRID_NUMBERS; ++k)
                cell[int64_t(k) * in.shape.cells()] += at.weight(corner) * grid_gradient(k, colour, got);
        }
    }
}

}  // namespace

void slice_grid(GridImage const& in, float* sliced_image) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < in.pixels(); ++i) {
        Vec3<float> const colour = load(in.image, i);
        store(sliced_image, i, sliced(in.grid, in.shape, in.cell(i, colour), colour));
    }
}

void slice_grid_backward(GridImage const& in, GridGrads const& d) {
    int64_t const slices = std::clamp<int64_t>(in.pixels() / in.numbers(), 1, SLICES), n = in.numbers();
    std::vector<float> others(std::size_t((slices - 1) * n));
    std::fill_n(d.grid, n, 0.f);
#pragma omp parallel for schedule(static)
    for (int64_t s = 0; s < slices; ++s) {
        float* const grid = s ? others.data() + (s - 1) * n : d.grid;
        backward(in, d, s * in.pixels() / slices, (s + 1) * in.pixels() / slices, grid);
    }
    for (int64_t s = 0; s + 1 < slices; ++s)
        for (int64_t k = 0; k < n; ++k) d.grid[k] += others[std::size_t(s * n + k)];
}

}  // namespace nurec::cpu
