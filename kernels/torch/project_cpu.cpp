// SPDX-License-Identifier: Apache-2.0
// nurec_lite::project, ::tile_camera and ::tile_lidar on the CPU.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstring>

#include "../cpu/project.h"
#include "gaussians.h"

namespace nurec {
namespace {

using at::Tensor;

template <class T>
Tensor copied(std::vector<T> const& values, at::ScalarType dtype, std::initializer_list<int64_t> shape) {
    Tensor out = at::empty(at::IntArrayRef(shape.begin(), shape.size()), at::TensorOptions(dtype));
    if (!values.empty()) std::memcpy(out.mutable_data_ptr(), values.data(), out.nbytes());
    return out;
}

cpu::Cells cells_of(Tensor const& directions, Tensor const& edges, int64_t columns) {
    check_cells(directions, edges, columns, at::kCPU);
    return {edges.const_data_ptr<float>(), edges.size(0) + 1, columns, directions.const_data_ptr<float>(),
            directions.size(0)};
}

std::tuple<Tensor, Tensor, Tensor> split(cpu::Projection const& p) {
    auto const n = static_cast<int64_t>(p.index.size());
    Tensor const bounds = copied(p.bounds, at::kFloat, {n, 4});
    // copies: without Gaussians a slice counts as contiguous, and the two would share memory
    auto const columns = [&](int64_t first) {
        return bounds.slice(1, first, first + 2).clone(at::MemoryFormat::Contiguous);
    };
    return {copied(p.index, at::kLong, {n}), columns(0), columns(2)};
}

std::tuple<Tensor, Tensor, Tensor> project(Tensor const& still_means, Tensor const& still_quats, Tensor const& means,
                                           Tensor const& quats, Tensor const& velocities, Tensor const& scales,
                                           Tensor const& opacities, Tensor const& view, Tensor const& directions,
                                           Tensor const& edges, int64_t columns) {
    GaussianTensors const g = {still_means, still_quats, means, quats, velocities, scales, opacities};
    check_gaussians(g);
    check_tensor(view, "view", at::kFloat, {sizeof(View<float>) / sizeof(float)}, at::kCPU);
    check_finite(view, "view");
    View<float> numbers;
    std::memcpy(&numbers, view.const_data_ptr<float>(), sizeof(numbers));
    cpu::Cells const cells = cells_of(directions, edges, columns);
    return split(cpu::project(arrays_of(g), numbers, numbers.is_camera > 0 ? nullptr : &cells));
}

std::tuple<Tensor, Tensor> tile_camera(Tensor const& low, Tensor const& high, Tensor const& index, int64_t width,
                                       int64_t height, int64_t tile) {
    check_projection(low, high, index);
    check_image(width, height, tile);
    cpu::TileLists const out =
        cpu::tile_camera(index.size(0), low.const_data_ptr<float>(), high.const_data_ptr<float>(),
                         index.const_data_ptr<int64_t>(), width, height, tile);
    return {copied(out.offsets, at::kLong, {static_cast<int64_t>(out.offsets.size())}),
            copied(out.gaussians, at::kLong, {static_cast<int64_t>(out.gaussians.size())})};
}

std::tuple<Tensor, Tensor, Tensor> tile_lidar(Tensor const& low, Tensor const& high, Tensor const& index,
                                              Tensor const& directions, Tensor const& edges, int64_t columns,
                                              int64_t max_rays) {
    check_projection(low, high, index);
    check_count(max_rays, "max_rays", MAX_SIDE);
    cpu::TileLists const out =
        cpu::tile_lidar(index.size(0), low.const_data_ptr<float>(), high.const_data_ptr<float>(),
                        index.const_data_ptr<int64_t>(), cells_of(directions, edges, columns), max_rays);
    auto const tiles = static_cast<int64_t>(out.offsets.size()) - 1;
    return {copied(out.rays, at::kLong, {tiles, out.rays_per_tile}), copied(out.offsets, at::kLong, {tiles + 1}),
            copied(out.gaussians, at::kLong, {static_cast<int64_t>(out.gaussians.size())})};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("project", &project);
    m.impl("tile_camera", &tile_camera);
    m.impl("tile_lidar", &tile_lidar);
}

}  // namespace nurec
