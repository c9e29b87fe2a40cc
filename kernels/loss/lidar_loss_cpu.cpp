// SPDX-License-Identifier: Apache-2.0
// Slices of rays have sums of their own, in double precision, which are added in their order: the number of threads
// changes nothing.
#include <algorithm>
#include <vector>

#include "lidar_loss.h"

namespace nurec::cpu {
namespace {

constexpr int64_t SLICE = 1 << 12;  // rays

struct Sums {
    double of[SUMS] = {};
};

Sums sums_of(LidarRays const& in, int64_t begin, int64_t end) {
    Sums sums;
    for (int64_t i = begin; i < end; ++i) add_ray(in, i, sums.of);
    return sums;
}

}  // namespace

void lidar_loss(LidarRays const& in, LidarTerms const& out) {
    int64_t const slices = (in.n + SLICE - 1) / SLICE;
    std::vector<Sums> parts(static_cast<std::size_t>(slices));
#pragma omp parallel for schedule(static)
    for (int64_t s = 0; s < slices; ++s)
        parts[std::size_t(s)] = sums_of(in, s * SLICE, std::min(in.n, (s + 1) * SLICE));
    Sums all;
    for (Sums const& one : parts)
        for (int k = 0; k < SUMS; ++k) all.of[k] += one.of[k];
    means_of(all.of, out);
}

void lidar_loss_backward(LidarRays const& in, LidarGrads const& d) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < in.n; ++i) ray_backward(in, d, i);
}

}  // namespace nurec::cpu
