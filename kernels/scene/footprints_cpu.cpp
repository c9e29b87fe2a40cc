// SPDX-License-Identifier: Apache-2.0
#include "../common/triples_cpu.h"
#include "footprints.h"

namespace nurec::cpu {

namespace {

template <bool PLAIN>
void measure(Watched const& in, float* most) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < in.n; ++i) most[i] = most_pixels_a_metre<PLAIN>(in, load(in.means, i), in.node[i]);
}

}  // namespace

void footprints(Watched const& in, float* most) {
    are_plain(in) ? measure<true>(in, most) : measure<false>(in, most);
}

}  // namespace nurec::cpu
