// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../project/candidates.cuh"

namespace nurec::cuda {

// Of a lidar: fills bounds and slabs.
void bound_warp_tiles(BinParams const& p, BinWork const& work, Queue const& queue);

}  // namespace nurec::cuda
