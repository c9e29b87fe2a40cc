// SPDX-License-Identifier: Apache-2.0
// Of bundles and of runs of them.
#pragma once

#include "candidates.cuh"

namespace nurec::cuda {

int64_t most_runs(Bundles const& b);  // places in BundleWork::runs
void bound_bundles(BundleParams const& p, BundleWork const& work, Queue const& queue);  // fills bounds, runs and bins

}  // namespace nurec::cuda
