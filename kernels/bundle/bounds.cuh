// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "candidates.cuh"

namespace nurec::cuda {

// Of a lidar: fills bounds and slabs.
void bound_bundles(BundleParams const& p, BundleWork const& work, Queue const& queue);

}  // namespace nurec::cuda
