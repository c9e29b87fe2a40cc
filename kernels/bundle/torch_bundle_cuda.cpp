// SPDX-License-Identifier: Apache-2.0
// nurec_lite::bundle_rays and ::list_bundles, which CUDA alone has.
#include <torch/library.h>

#include "../common/torch_aligned.h"
#include "../common/torch_cells.h"
#include "../common/torch_gaussians.h"
#include "../common/torch_site.h"
#include "../project/params.h"
#include "../tile/torch_tile.h"
#include "torch_bundle.h"

namespace nurec {
namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Four bundle_rays(at::TensorList grid) {
    Sweeps const sweeps = {cells_of(grid, 1, grid[0].device()), 1, nullptr};
    Site site(grid[0].device());
    int64_t const n = cuda::most_bundles(sweeps);
    Tensor const rays = site.empty({n, BUNDLE_RAYS}, at::kLong), first = site.empty({sweeps.bands() + 1}, at::kInt);
    Tensor const bins = site.empty({sweeps.bands(), BINS, 2}, at::kInt);
    Tensor const heights = site.empty({sweeps.bands(), 2}, at::kFloat);
    cuda::bundle_rays(sweeps,
                      {rays.mutable_data_ptr<int64_t>(), first.mutable_data_ptr<int>(), bins.mutable_data_ptr<int>(),
                       heights.mutable_data_ptr<float>()},
                      site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {rays, first, bins, heights};
}

// As nurec_lite.native.groups.Bundles lists them; `size`: pixels of an image and of a bundle, empty of a lidar.
Bundles bundles_of(at::TensorList t, at::TensorList grid, at::IntArrayRef size) {
    check_group(t, "bundles", 4, "rays, first, bins, heights");
    check_tensor(t[0], "bundles.rays", at::kLong, {-1, BUNDLE_RAYS}, t[0].device());
    Bundles b = size.empty() ? bands_of_bundles(t[1], t[2], t[3], grid) : Bundles{};
    b.n = t[0].size(0), b.rays = t[0].const_data_ptr<int64_t>(), b.is_camera = !size.empty();
    check_bundle_count(b.n, b.is_camera);
    if (b.is_camera) {
        TORCH_CHECK_VALUE(size.size() == 4, "size has ", size.size(), " numbers, but must have 4 or none");
        for (int64_t const s : size) check_count(s, "size", MAX_SIDE);
        b.width = int(size[2]), b.height = int(size[3]);
        b.columns = int((size[0] + size[2] - 1) / size[2]), b.rows = int((size[1] + size[3] - 1) / size[3]);
        int64_t const all = CLUSTER * int64_t(b.clusters_of_image());
        TORCH_CHECK_VALUE(b.n == all, "bundles.rays has ", b.n, " rows, but must have ", all);
    }
    return b;
}

float const* checked_shapes(Tensor const& t, int64_t n, bool is_camera, at::Device device) {
    check_tensor(t, "shapes", at::kFloat, {n, shape_floats(is_camera)}, device);
    check_aligned(t, "shapes");
    return t.const_data_ptr<float>();
}

// As nurec_lite.native.groups.BoundsInPlace lists them of an image, and CandidatesInPlace of a lidar.
void add_places(at::TensorList t, int64_t n, BundleParams& p) {
    bool const is_camera = p.bundles.is_camera;
    check_group(t, "projection", is_camera ? 3 : 4,
                is_camera ? "indices, there, bounds" : "indices, there, candidates, counts");
    auto const device = t[0].device();
    check_tensor(t[0], "indices", at::kLong, {-1}, device);
    check_tensor(t[1], "there", at::kLong, {1}, device);
    char const* const name = is_camera ? "bounds" : "candidates";
    check_tensor(t[2], name, at::kFloat, {n, is_camera ? 4 : CANDIDATE_FLOATS}, device);
    check_aligned(t[2], name);
    p.v = t[0].size(0), p.index = t[0].const_data_ptr<int64_t>(), p.count = t[1].const_data_ptr<int64_t>();
    auto* const places = t[2].mutable_data_ptr<float>();
    if (is_camera) {
        p.bounds = reinterpret_cast<Bounds<float> const*>(places);
        return;
    }
    check_tensor(t[3], "counts", at::kInt, {n}, device);
    p.candidates = reinterpret_cast<cuda::Candidates*>(places), p.counts = t[3].const_data_ptr<int>();
}

Three list_bundles(at::TensorList gaussians, Tensor const& view, at::TensorList projection, Tensor const& shapes,
                   at::TensorList rays, at::TensorList bundles, at::TensorList grid, at::IntArrayRef size, bool exact,
                   int64_t room) {
    check_room(room);
    GaussianTensors const g = gaussians_of(gaussians, view);
    check_gaussians(g);
    int64_t const n = arrays_of(g).n;
    check_group(rays, "rays", 2, "directions, delays");
    BundleParams p = {};
    p.g = arrays_of(g), p.bundles = bundles_of(bundles, grid, size), p.view = &row_of(view)->view;
    add_places(projection, n, p);
    p.directions = rays[0].const_data_ptr<float>(), p.delays = rays[1].const_data_ptr<float>(), p.exact = exact;
    p.shapes = exact ? checked_shapes(shapes, n, !size.empty(), view.device()) : nullptr;
    Site site(view.device());
    Tensor const begins = site.empty({p.v + 1}, at::kLong), needed = site.empty({1}, at::kLong);
    cuda::BundleWork work = cuda::bundle_work(p, begins.mutable_data_ptr<int64_t>(), room, site.queue());
    cuda::number_candidates(p, work, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    auto* const most = needed.mutable_data_ptr<int64_t>();
    if (room < 0) {
        cuda::own_candidates(p, work, (read_back(begins, p.v) + 31) / 32, site.queue());
        cuda::count_entries(p, work, most, site.queue());
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    int64_t const entries = room < 0 ? checked_needed(read_back(needed, 0)) : room;
    Tensor const offsets = site.empty({p.bundles.lists() + 1}, at::kLong), listed = site.empty({entries}, at::kInt);
    cuda::list_entries(p, work, {entries, offsets.mutable_data_ptr<int64_t>(), listed.mutable_data_ptr<int>()}, most,
                       site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {offsets, listed, room < 0 ? site.empty({0}, at::kLong) : needed};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("bundle_rays", &bundle_rays);
    m.impl("list_bundles", &list_bundles);
}

}  // namespace nurec
