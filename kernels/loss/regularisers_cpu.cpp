// SPDX-License-Identifier: Apache-2.0
// Slices of Gaussians have sums of their own, in double precision, which are added in their order: the number of
// threads changes nothing.
#include <algorithm>
#include <vector>

#include "../common/visible_cpu.h"
#include "regularisers.h"

namespace nurec::cpu {
namespace {

constexpr int64_t SLICE = 16;  // blocks of Gaussians

struct Sums {
    double opacity = 0, scale = 0, tie = 0;
    int64_t n = 0;
};

void add(RegularisedGaussians const& in, int64_t i, Sums& sums) {
    ++sums.n;
    float opacity = 0, tie = 0;
    add_opacities(in, i, opacity, tie);
    sums.opacity += opacity, sums.tie += tie;
    for (int64_t k = 3 * i; k < 3 * i + 3; ++k) sums.scale += in.scales[k];
}

// Returns the sums of some visible blocks: from the one of number `begin` on, before that of number `end`.
Sums sums_of(RegularisedGaussians const& in, int64_t begin, int64_t end) {
    Sums sums;
    for (int64_t k = begin; k < end; ++k) {
        int64_t const first = in.blocks.first(k);
        for (int64_t i = first; i < std::min(first + BLOCK_GAUSSIANS, in.n); ++i) add(in, i, sums);
    }
    return sums;
}

}  // namespace

void regularisers(RegularisedGaussians const& in, Terms const& out) {
    int64_t const count = in.blocks.count(in.n), slices = (count + SLICE - 1) / SLICE;
    std::vector<Sums> parts(static_cast<std::size_t>(slices));
#pragma omp parallel for schedule(static)
    for (int64_t s = 0; s < slices; ++s)
        parts[std::size_t(s)] = sums_of(in, s * SLICE, std::min(count, (s + 1) * SLICE));
    Sums all;
    for (Sums const& one : parts)
        all.opacity += one.opacity, all.scale += one.scale, all.tie += one.tie, all.n += one.n;
    auto const n = in.n ? double(std::max<int64_t>(all.n, 1)) : 0;
    *out.opacity = float(all.opacity / n), *out.scale = float(all.scale / (3 * n)), *out.tie = float(all.tie / n);
}

void regularisers_backward(RegularisedGaussians const& in, TermGrads const& d) {
    *d.d_scales = share(d.scale, 3 * in.n);
    if (!in.lidar_opacities) {
        *d.d_opacities = share(d.opacity, in.n);
        return;
    }
    for_visible_gaussians(in.blocks, in.n, [&](int64_t i) { opacities_backward(in, d, i); });
}

}  // namespace nurec::cpu
