// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::tile_camera and ::tile_lidar take and give, on either device. `capacity` is how many entries the
// lists may have, or -1: all that there are. With a room nothing is read back, and `needed` [1] says how many there
// are; without, it is empty.
#pragma once

#include "../common/torch_cells.h"
#include "tile.h"

namespace nurec {

using CameraLists = std::tuple<at::Tensor, at::Tensor, at::Tensor>;             // offsets, gaussians, needed
using LidarLists = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;  // rays, and these

// As nurec_lite.native.groups.Bounds lists them.
inline TileParams projection_of(at::TensorList t) {
    check_group(t, "projection", 3, "indices, low, high");
    at::Tensor const &index = t[0], &low = t[1], &high = t[2];
    check_tensor(index, "indices", at::kLong, {-1}, index.device());
    check_tensor(low, "low", at::kFloat, {index.size(0), 2}, index.device());
    check_tensor(high, "high", at::kFloat, {index.size(0), 2}, index.device());
    check_finite(low, "low");
    check_finite(high, "high");
    TileParams p = {};
    p.v = index.size(0), p.index = index.const_data_ptr<int64_t>();
    p.low = low.const_data_ptr<float>(), p.high = high.const_data_ptr<float>();
    return p;
}

inline TileParams checked_camera(at::TensorList projection, int64_t width, int64_t height, int64_t tile,
                                 int64_t capacity) {
    check_capacity(capacity);
    check_image(width, height, tile);
    TileParams p = projection_of(projection);
    p.is_camera = true, p.width = width, p.height = height, p.tile = tile;
    return p;
}

inline TileParams checked_lidar(at::TensorList projection, at::TensorList grid, int64_t columns, int64_t max_rays,
                                int64_t capacity) {
    check_capacity(capacity);
    check_count(max_rays, "max_rays", MAX_SIDE);
    TileParams p = projection_of(projection);
    p.cells = cells_of(grid, columns, projection[0].device());
    p.max_rays = max_rays;
    return p;
}

}  // namespace nurec
