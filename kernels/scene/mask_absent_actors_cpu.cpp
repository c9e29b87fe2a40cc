// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "../math/actors.cuh"
#include "mask_absent_actors.h"

namespace nurec::cpu {

void mask_absent_actors(Presence const& in, OpacitiesAt const* at, int64_t times) {
    for (int64_t q = 0; q < times; ++q) {
        float const* const from = at[q].from;
        float* const to = at[q].to;
        std::copy_n(from, in.still, to);
#pragma omp parallel for schedule(static)
        for (int64_t i = in.still; i < in.n; ++i)
            to[i] = present(in.first[in.node[i]], in.last[in.node[i]], *at[q].time) * from[i];
    }
}

}  // namespace nurec::cpu
