// SPDX-License-Identifier: Apache-2.0
// Slices of the Gaussians are added up in double precision and in their order: the number of threads changes nothing.
#include <array>
#include <vector>

#include "../common/gaussians_cpu.h"
#include "../common/triples_cpu.h"
#include "pose_gradient.h"

namespace nurec::cpu {
namespace {

constexpr int64_t SLICE = 1 << 13;  // Gaussians

using Sums = std::array<double, POSE_DELTA_FLOATS>;

void add(PlacedSet const& g, Vec3<float> centre, int64_t i, Sums& sums) {
    Correction<float> const c =
        pose_vjp<float>(load(g.means, i) - centre, load_quat(g.quats, i), load(g.d_means, i), load_quat(g.d_quats, i));
    double const values[POSE_DELTA_FLOATS] = {c.turn.x, c.turn.y, c.turn.z, c.shift.x, c.shift.y, c.shift.z};
    for (std::size_t k = 0; k < POSE_DELTA_FLOATS; ++k) sums[k] += values[k];
}

void add_all(PlacedSet const& g, Vec3<float> centre, Sums& total) {
    int64_t const slices = (g.n + SLICE - 1) / SLICE;
    std::vector<Sums> sums(static_cast<std::size_t>(slices), Sums{});
#pragma omp parallel for schedule(static)
    for (int64_t s = 0; s < slices; ++s)
        for (int64_t i = s * SLICE; i < g.n && i < (s + 1) * SLICE; ++i)
            add(g, centre, i, sums[static_cast<std::size_t>(s)]);
    for (Sums const& slice : sums)
        for (std::size_t k = 0; k < POSE_DELTA_FLOATS; ++k) total[k] += slice[k];
}

}  // namespace

void pose_gradient(PlacedGaussians const& in, float* gradient) {
    Sums total = {};
    for (PlacedSet const& g : in.sets) add_all(g, *in.centre, total);
    for (std::size_t k = 0; k < POSE_DELTA_FLOATS; ++k) gradient[k] = float(total[k]);
}

}  // namespace nurec::cpu
