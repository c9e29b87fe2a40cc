// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "candidates.cuh"

namespace nurec::cuda {

void bound_bundles(BundleParams const& p, BundleWork const& work,
                   Queue const& queue);  // of a lidar: fills bounds, fans and bins

}  // namespace nurec::cuda
