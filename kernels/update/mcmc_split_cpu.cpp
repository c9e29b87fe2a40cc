// SPDX-License-Identifier: Apache-2.0
#include "mcmc_split.h"

namespace nurec::cpu {
namespace {

template <int S>
void part_all(CopiedGaussians const& in) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < in.n; ++i) part_one<S>(in, i);
}

}  // namespace

void mcmc_split(CopiedGaussians const& in) {
    in.sensors == 1 ? part_all<1>(in) : part_all<2>(in);
}

}  // namespace nurec::cpu
