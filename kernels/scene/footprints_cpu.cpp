// SPDX-License-Identifier: Apache-2.0
#include "../common/triples_cpu.h"
#include "footprints.h"

namespace nurec::cpu {

void footprints(Watched const& in, float* most) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < in.n; ++i) most[i] = most_pixels_a_metre(in, load(in.means, i), in.node[i]);
}

}  // namespace nurec::cpu
