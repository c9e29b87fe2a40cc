// SPDX-License-Identifier: Apache-2.0
#include "../common/triples_cpu.h"
#include "rays.h"

namespace nurec::cpu {
namespace {

template <bool ALIKE>
void make(RayParams const& p) {
    Trajectory<float> const path = *p.path;
    Pose<float> const shared = sensor_at(path, ALIKE ? p.fractions[0] : 0.f);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < p.n; ++i) {
        float const fraction = p.fractions[ALIKE ? 0 : i], *const d = p.directions + 3 * i;
        Pose<float> const pose = ALIKE ? shared : sensor_at(path, fraction);
        Ray<float> const ray = ray_at(path, pose, {d[0], d[1], d[2]}, fraction);
        if (p.origins) store(p.origins, i, ray.r);
        store(p.world, i, ray.d);
        p.delays[i] = ray.dt;
    }
}

}  // namespace

void make_rays(RayParams const& p) {
    if (!p.n) return;
    p.alike ? make<true>(p) : make<false>(p);
}

}  // namespace nurec::cpu
