// SPDX-License-Identifier: Apache-2.0
// nurec_lite::tile_camera and ::tile_lidar on the CPU.
#include <torch/library.h>

#include <algorithm>

#include "../common/torch_copied.h"
#include "torch_tile.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor whole(std::vector<int64_t> const& values) {
    return copied(values, at::kLong, {static_cast<int64_t>(values.size())});
}

Tensor rays_of(cpu::TileLists const& lists) {
    return copied(lists.rays, at::kLong, {static_cast<int64_t>(lists.offsets.size()) - 1, lists.rays_per_tile});
}

// Cuts what does not fit, and fills what stays free with zeros; gives how many entries there were.
Tensor fit(cpu::TileLists& lists, int64_t capacity) {
    if (capacity < 0) return whole({});
    Tensor const needed = whole({static_cast<int64_t>(lists.gaussians.size())});
    lists.gaussians.resize(capacity);
    for (int64_t& offset : lists.offsets) offset = std::min(offset, capacity);
    return needed;
}

CameraLists tile_camera(at::TensorList projection, int64_t width, int64_t height, int64_t tile, int64_t capacity) {
    cpu::TileLists lists = cpu::tile(checked_camera(projection, width, height, tile, capacity));
    Tensor const needed = fit(lists, capacity);
    return {whole(lists.offsets), whole(lists.gaussians), needed};
}

LidarLists tile_lidar(at::TensorList projection, at::TensorList grid, int64_t columns, int64_t max_rays,
                      int64_t capacity) {
    cpu::TileLists lists = cpu::tile(checked_lidar(projection, grid, columns, max_rays, capacity));
    Tensor const needed = fit(lists, capacity);
    return {rays_of(lists), whole(lists.offsets), whole(lists.gaussians), needed};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("tile_camera", &tile_camera);
    m.impl("tile_lidar", &tile_lidar);
}

}  // namespace nurec
