// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::project: checks and allocation, for the CPU and for CUDA.
#include <torch/library.h>

#include <algorithm>
#include <cstdint>

#include "../common/torch_cells.h"
#include "../common/torch_gaussians.h"
#include "../common/torch_site.h"
#include "../math/activate.cuh"
#include "project.h"
#include "torch_warp_tiles.h"
#include "visible_blocks.h"

namespace nurec {
namespace {

// index, low, high, seen, shapes, count, candidates, counts
using Projected =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

enum SensorKind : int64_t { LIDAR = 0, CAMERA = 1, CAMERA_WITH_LENS = 2 };

void check_sensor_kind(int64_t sensor) {
    TORCH_CHECK_VALUE(sensor >= LIDAR && sensor <= CAMERA_WITH_LENS, "sensor is ", sensor,
                      ", but must be 0, a lidar, 1, a camera, or 2, a camera with a lens of its own");
}

// features: of a lidar, if its shapes are wanted.
ProjectParams checked_project(at::TensorList gaussians, at::Tensor const& view, int64_t sensor, at::TensorList grid,
                              int64_t columns, std::optional<at::Tensor> const& features = {},
                              std::optional<at::Tensor> const& blocks = {}) {
    check_sensor_kind(sensor);
    bool const is_camera = sensor != LIDAR;
    GaussianTensors const g = gaussians_of(gaussians, view);
    check_gaussians(g);
    check_sensor(view, is_camera);
    Cells const cells = is_camera ? Cells{} : cells_of(grid, columns, view.device());
    if (features) check_tensor(*features, "features", at::kFloat, {g.scales.size(0), 2}, view.device());
    ViewRow<float> const& row = *row_of(view);
    return {arrays_of(g),
            &row.view,
            is_camera,
            cells,
            &row.path,
            features ? features->const_data_ptr<float>() : nullptr,
            {},
            sensor == CAMERA_WITH_LENS ? &row.lens : nullptr,
            checked_blocks(blocks, g.scales.size(0), view.device())};
}

using at::Tensor;

#ifdef NUREC_CUDA

Tensor occupied_cells(at::TensorList grid, int64_t columns) {
    Cells const cells = cells_of(grid, columns, grid[0].device());
    Site site(grid[0].device());
    Tensor const table = site.empty({cells.bands + 1, 3 * cells.columns + 1}, at::kInt);
    cuda::count_occupied({cells, 1, nullptr}, table.mutable_data_ptr<int>(), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return table;
}

// Cells of the lidars among the views, in their order, and the tables of those that hold rays.
struct LidarCells {
    at::TensorList edges, occupied;
    at::IntArrayRef columns;
    std::size_t used = 0;

    void check(std::size_t lidars) const {
        TORCH_CHECK_VALUE(edges.size() == lidars && columns.size() == lidars && occupied.size() == lidars,
                          "edges, columns and occupied have ", edges.size(), ", ", columns.size(), " and ",
                          occupied.size(), " items, but each needs one for each lidar");
    }

    Cells next(at::Device device, int const*& table) {
        Tensor const &own = edges[used], &there = occupied[used];
        check_tensor(own, "edges", at::kFloat, {-1}, device);
        check_finite(own, "edges");
        check_ascends<float>(own, "edges");
        check_count(columns[used], "columns", MAX_SIDE);
        Cells const found = {own.const_data_ptr<float>(), own.size(0) + 1, columns[used++], nullptr, 0};
        check_tensor(there, "occupied", at::kInt, {found.bands + 1, 3 * found.columns + 1}, device);
        table = there.const_data_ptr<int>();
        return found;
    }
};

cuda::BlockView block_view(Tensor const& row, int64_t sensor, LidarCells& cells) {
    check_tensor(row, "a row of views", at::kFloat, {VIEW_NUMBERS}, row.device());
    check_sensor(row, sensor != LIDAR);
    cuda::BlockView found = {row_of(row), sensor == CAMERA_WITH_LENS, nullptr, {}};
    if (sensor == LIDAR) found.cells = cells.next(row.device(), found.occupied);
    return found;
}

// The Gaussians of a scene; it has no views yet.
cuda::BlockScene block_scene(Tensor const& means, Tensor const& log_scales, Tensor const& opacity_logits,
                             Tensor const& lidar_logits, Tensor const& spheres, int64_t still) {
    auto const device = means.device();
    check_tensor(means, "means", at::kFloat, {-1, 3}, device);
    int64_t const n = means.size(0);
    check_tensor(log_scales, "log_scales", at::kFloat, {n, 3}, device);
    check_tensor(opacity_logits, "opacity_logits", at::kFloat, {n}, device);
    check_tensor(lidar_logits, "lidar_logits", at::kFloat, {n, -1}, device);
    check_tensor(spheres, "spheres", at::kFloat, {blocks_of_store(n), 4}, device);
    TORCH_CHECK_VALUE(reinterpret_cast<std::uintptr_t>(spheres.const_data_ptr<float>()) % 16 == 0,
                      "spheres do not begin at a multiple of 16 bytes; call .clone()");
    TORCH_CHECK_VALUE(still >= 0 && still <= n, "still is ", still, ", but must be 0 to ", n, ", the Gaussians");
    int64_t const columns = lidar_logits.size(1);
    return {n,
            still,
            means.const_data_ptr<float>(),
            log_scales.const_data_ptr<float>(),
            opacity_logits.const_data_ptr<float>(),
            columns > LIDAR_VALUES ? lidar_logits.const_data_ptr<float>() + LIDAR_VALUES : nullptr,
            spheres.mutable_data_ptr<float>(),
            columns,
            0,
            {}};
}

Tensor mark_visible_blocks(Tensor const& means, Tensor const& log_scales, Tensor const& opacity_logits,
                           Tensor const& lidar_logits, Tensor const& spheres, int64_t still, at::TensorList views,
                           at::IntArrayRef sensors, at::TensorList edges, at::IntArrayRef columns,
                           at::TensorList occupied) {
    cuda::BlockScene in = block_scene(means, log_scales, opacity_logits, lidar_logits, spheres, still);
    in.views = int64_t(views.size());
    check_count(in.views, "number of views", cuda::MAX_BLOCK_VIEWS);
    TORCH_CHECK_VALUE(sensors.size() == views.size(), "sensors has ", sensors.size(), " values, but there are ",
                      views.size(), " views");
    for (int64_t const sensor : sensors) check_sensor_kind(sensor);
    LidarCells cells = {edges, occupied, columns};
    cells.check(std::size_t(std::count(sensors.begin(), sensors.end(), LIDAR)));
    for (std::size_t k = 0; k < views.size(); ++k) {
        TORCH_CHECK_VALUE(views[k].device() == means.device(), "a row of views is on ", views[k].device(),
                          ", but means are on ", means.device());
        in.view[k] = block_view(views[k], sensors[k], cells);
    }
    Site site(means.device());
    Tensor const visible = site.empty({cuda::flags_of_store(in.n)}, at::kByte);
    cuda::mark_visible_blocks(in, visible.mutable_data_ptr<uint8_t>(), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return visible;
}

Tensor list_visible_blocks(Tensor const& visible, Tensor const& spheres) {
    int64_t const n = spheres.size(0);
    check_tensor(spheres, "spheres", at::kFloat, {-1, 4}, visible.device());
    check_tensor(visible, "visible", at::kByte, {cuda::flags_of_store(BLOCK_GAUSSIANS * n)}, visible.device());
    TORCH_CHECK_VALUE(is_aligned(visible) && is_aligned(spheres),
                      "visible and spheres must begin at a multiple of 16 bytes; call .clone()");
    Site site(visible.device());
    Tensor const listed = site.empty({1 + n}, at::kInt);
    cuda::list_visible_blocks(visible.const_data_ptr<uint8_t>(), n, listed.mutable_data_ptr<int>(),
                              spheres.mutable_data_ptr<float>(), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return listed;
}

// Occupied cells of a lidar, given or from its rays.
int const* occupied_by(ProjectParams const& p, std::optional<Tensor> const& given, Site& site) {
    if (p.is_camera) return nullptr;
    if (!given) return cuda::count_occupied({p.cells, 1, nullptr}, site.queue());
    check_tensor(*given, "occupied", at::kInt, {p.cells.bands + 1, 3 * p.cells.columns + 1}, site.device());
    return given->const_data_ptr<int>();
}

// The tensors of nurec_lite.native.operators.warp_tiles.BandTiles; none: candidates are not asked for.
void add_bands(at::TensorList t, ProjectParams& p) {
    if (t.empty()) return;
    TORCH_CHECK_VALUE(!p.is_camera, "bands are given, but an image has none: leave them out");
    check_group(t, "bands", 5, "first, bins, heights, directions, edges");
    p.warp_tiles = sweep_tiles_of(t[0], t[1], t[2], {t[3], t[4]});
}

// Inputs of the lists of warp tiles: tests, and places of Gaussians: their bounds, or for a lidar their candidates.
struct Places {
    Tensor shapes, bounds, candidates, counts;
};

Places places_for(ProjectParams const& p, bool shapes, Site& site) {
    int64_t const n = p.g.n, own = p.warp_tiles.first ? n : 0;
    return {site.empty({shapes ? n : 0, shape_floats(p.is_camera)}, at::kFloat),
            site.empty({own ? 0 : n, 4}, at::kFloat), site.empty({own, CANDIDATE_FLOATS}, at::kFloat),
            site.empty({own}, at::kInt)};
}

cuda::Visibility looked_to(Places const& places, Tensor const& seen, int bits, bool shapes, Site& site) {
    bool const own = places.counts.size(0);
    return {seen.mutable_data_ptr<uint8_t>(),
            site.queue().memory.array<uint32_t>(seen.size(0)),
            reinterpret_cast<Bounds<float>*>(places.bounds.mutable_data_ptr<float>()),
            bits,
            shapes ? places.shapes.mutable_data_ptr<float>() : nullptr,
            own ? reinterpret_cast<cuda::Candidates*>(places.candidates.mutable_data_ptr<float>()) : nullptr,
            own ? places.counts.mutable_data_ptr<int>() : nullptr};
}

Projected project(at::TensorList gaussians, Tensor const& view, int64_t sensor, at::TensorList grid, int64_t columns,
                  at::TensorList bands, bool all, int64_t depth_bits, bool shapes,
                  std::optional<Tensor> const& occupied, bool in_place, std::optional<Tensor> const& features,
                  std::optional<Tensor> const& blocks) {
    ProjectParams p = checked_project(gaussians, view, sensor, grid, columns, features, blocks);
    add_bands(bands, p);
    TORCH_CHECK_VALUE(!blocks || in_place,
                      "blocks are given, but only results that stay in place know them: leave them out");
    TORCH_CHECK_VALUE(bands.empty() || in_place, "bands are given, but not asked for in_place");
    TORCH_CHECK_VALUE(p.is_camera || !shapes || (features && p.warp_tiles.first),
                      "shapes of a lidar hold what its rays read: they need features and bands");
    int const bits = checked_depth_bits(depth_bits);
    Site site(view.device());
    Tensor const seen = site.empty({p.g.n}, at::kByte);
    Places const places = places_for(p, shapes, site);
    cuda::Visibility const visibility = looked_to(places, seen, bits, shapes, site);
    cuda::look(p, occupied_by(p, occupied, site), visibility, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    Tensor const count = site.empty({1}, at::kLong), none = site.empty({0, 2}, at::kFloat);
    auto* const visible = count.mutable_data_ptr<int64_t>();
    Tensor const order = site.empty({in_place ? p.g.n : 0}, at::kLong);
    uint32_t const* const numbers = cuda::sort_by_depth(
        p, visibility, visible, in_place ? order.mutable_data_ptr<int64_t>() : nullptr, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const v = all ? p.g.n : read_back(count, 0);
    auto const& [kept, bounds, candidates, counts] = places;
    if (in_place) return {order.slice(0, 0, v), bounds, none, seen, kept, count, candidates, counts};
    Tensor const index = site.empty({v}, at::kLong), low = site.empty({v, 2}, at::kFloat),
                 high = site.empty({v, 2}, at::kFloat);
    cuda::Sorted const out = {v, index.mutable_data_ptr<int64_t>(), low.mutable_data_ptr<float>(),
                              high.mutable_data_ptr<float>()};
    cuda::gather_bounds(visibility, numbers, visible, out, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {index, low, high, seen, kept, site.empty({0}, at::kLong), candidates, counts};
}

#else

Projected split(cpu::Projection const& p, Tensor const& seen, bool is_camera) {
    auto const n = static_cast<int64_t>(p.index.size());
    Tensor const bounds = copied(p.bounds, at::kFloat, {n, 4});
    // copies: without Gaussians a slice counts as contiguous, and the two would share memory
    auto const columns = [&](int64_t first) {
        return bounds.slice(1, first, first + 2).clone(at::MemoryFormat::Contiguous);
    };
    return {copied(p.index, at::kLong, {n}),
            columns(0),
            columns(2),
            seen,
            at::empty({0, shape_floats(is_camera)}, bounds.options()),
            at::empty({0}, bounds.options().dtype(at::kLong)),
            at::empty({0, CANDIDATE_FLOATS}, bounds.options()),
            at::empty({0}, bounds.options().dtype(at::kInt))};
}

std::vector<uint8_t> seen_in(int64_t n, cpu::Projection const& found) {
    std::vector<uint8_t> seen(n, 0);
    for (int64_t const i : found.index) seen[i] = 1;
    return seen;
}

void fill_up(int64_t n, cpu::Projection& found) {
    found.index.resize(n, 0);
    found.bounds.resize(n, {NOWHERE, NOWHERE, -NOWHERE, -NOWHERE});
}

Projected project(at::TensorList gaussians, Tensor const& view, int64_t sensor, at::TensorList grid, int64_t columns,
                  at::TensorList bands, bool all, int64_t depth_bits, bool shapes,
                  std::optional<Tensor> const& occupied, bool in_place, std::optional<Tensor> const& features,
                  std::optional<Tensor> const& blocks) {
    TORCH_CHECK_VALUE(bands.empty(), "bands are given, but only a GPU lists warp tiles: leave them out");
    TORCH_CHECK_VALUE(!in_place, "bounds are to stay in place, but only a GPU lists warp tiles: leave that out");
    TORCH_CHECK_VALUE(!shapes, "shapes are asked for, but only a GPU lists warp tiles: leave them out");
    TORCH_CHECK_VALUE(!features, "features are given, but only a GPU keeps what rays read: leave them out");
    TORCH_CHECK_VALUE(!blocks, "blocks are given, but only a GPU passes hidden ones by: leave them out");
    TORCH_CHECK_VALUE(!occupied, "occupied is given, but only a GPU looks at it: leave it out");
    ProjectParams const p = checked_project(gaussians, view, sensor, grid, columns);
    cpu::Projection found = cpu::project(p, checked_depth_bits(depth_bits));
    std::vector<uint8_t> const seen = seen_in(p.g.n, found);
    if (all) fill_up(p.g.n, found);
    return split(found, copied(seen, at::kByte, {p.g.n}), p.is_camera);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("project", &project);
#ifdef NUREC_CUDA
    m.impl("occupied_cells", &occupied_cells);
    m.impl("mark_visible_blocks", &mark_visible_blocks);
    m.impl("list_visible_blocks", &list_visible_blocks);
#endif
}

}  // namespace nurec
