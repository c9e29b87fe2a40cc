// SPDX-License-Identifier: Apache-2.0
// nurec_lite::tile_camera and ::tile_lidar on the CPU, and the same within a given room.
#include <torch/library.h>

#include <algorithm>

#include "../common/torch_lists_cpu.h"

namespace nurec {
namespace {

using at::Tensor;

cpu::TileLists camera_lists(Tensor const& low, Tensor const& high, Tensor const& index, int64_t width, int64_t height,
                            int64_t tile) {
    check_projection(low, high, index);
    check_image(width, height, tile);
    return cpu::tile_camera(index.size(0), low.const_data_ptr<float>(), high.const_data_ptr<float>(),
                            index.const_data_ptr<int64_t>(), width, height, tile);
}

cpu::TileLists lidar_lists(Tensor const& low, Tensor const& high, Tensor const& index, Tensor const& directions,
                           Tensor const& edges, int64_t columns, int64_t max_rays) {
    check_projection(low, high, index);
    check_count(max_rays, "max_rays", MAX_SIDE);
    return cpu::tile_lidar(index.size(0), low.const_data_ptr<float>(), high.const_data_ptr<float>(),
                           index.const_data_ptr<int64_t>(), cells_of(directions, edges, columns), max_rays);
}

Tensor whole(std::vector<int64_t> const& values) {
    return copied(values, at::kLong, {static_cast<int64_t>(values.size())});
}

Tensor rays_of(cpu::TileLists const& lists) {
    return copied(lists.rays, at::kLong, {static_cast<int64_t>(lists.offsets.size()) - 1, lists.rays_per_tile});
}

// Cuts what does not fit, and fills what stays free with zeros; returns how many entries there were.
Tensor fit(cpu::TileLists& lists, int64_t room) {
    Tensor const needed = whole({static_cast<int64_t>(lists.gaussians.size())});
    lists.gaussians.resize(room);
    for (int64_t& offset : lists.offsets) offset = std::min(offset, room);
    return needed;
}

std::tuple<Tensor, Tensor> tile_camera(Tensor const& low, Tensor const& high, Tensor const& index, int64_t width,
                                       int64_t height, int64_t tile) {
    cpu::TileLists const lists = camera_lists(low, high, index, width, height, tile);
    return {whole(lists.offsets), whole(lists.gaussians)};
}

std::tuple<Tensor, Tensor, Tensor> tile_camera_within(Tensor const& low, Tensor const& high, Tensor const& index,
                                                      int64_t width, int64_t height, int64_t tile, int64_t room) {
    check_room(room);
    cpu::TileLists lists = camera_lists(low, high, index, width, height, tile);
    Tensor const needed = fit(lists, room);
    return {whole(lists.offsets), whole(lists.gaussians), needed};
}

std::tuple<Tensor, Tensor, Tensor> tile_lidar(Tensor const& low, Tensor const& high, Tensor const& index,
                                              Tensor const& directions, Tensor const& edges, int64_t columns,
                                              int64_t max_rays) {
    cpu::TileLists const lists = lidar_lists(low, high, index, directions, edges, columns, max_rays);
    return {rays_of(lists), whole(lists.offsets), whole(lists.gaussians)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> tile_lidar_within(Tensor const& low, Tensor const& high, Tensor const& index,
                                                             Tensor const& directions, Tensor const& edges,
                                                             int64_t columns, int64_t max_rays, int64_t room) {
    check_room(room);
    cpu::TileLists lists = lidar_lists(low, high, index, directions, edges, columns, max_rays);
    Tensor const needed = fit(lists, room);
    return {rays_of(lists), whole(lists.offsets), whole(lists.gaussians), needed};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("tile_camera", &tile_camera);
    m.impl("tile_camera_within", &tile_camera_within);
    m.impl("tile_lidar", &tile_lidar);
    m.impl("tile_lidar_within", &tile_lidar_within);
}

}  // namespace nurec
