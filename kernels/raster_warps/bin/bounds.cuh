// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../project/candidates.cuh"

namespace nurec::cuda {

// Fills bounds and slabs of a lidar.
void bound_warp_tiles(BinParams const& p, BinWork const& work, Queue const& queue);

}  // namespace nurec::cuda
