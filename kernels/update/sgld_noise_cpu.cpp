// SPDX-License-Identifier: Apache-2.0
#include "../common/gaussians_cpu.h"
#include "../common/visible_cpu.h"
#include "sgld_noise.h"

namespace nurec::cpu {

void sgld_noise(ExploringGaussians const& in) {
    for_visible_gaussians(in.blocks, in.n, [&](int64_t i) {
        for (int64_t k = 3 * i; k < 3 * i + 3; ++k) in.log_scales[k] = at_least(in.log_scales[k], in.least);
        Vec3<float> const s = load3(in.log_scales, i), eta = eta_of(in, i);
        Vec3<float> const apart = {exp(s.x) * eta.x, exp(s.y) * eta.y, exp(s.z) * eta.z};
        store3(in.means, i, load3(in.means, i) + turned(load_quat(in.quats, i), wandering_of(in, i) * apart));
    });
}

}  // namespace nurec::cpu
