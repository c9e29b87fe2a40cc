// SPDX-License-Identifier: Apache-2.0
// Projects the Gaussians of all views. One thread an instance.
#include "../../common/launch.cuh"
#include "../../common/triples.cuh"
#include "../../project/visibility.cuh"
#include "views.cuh"

namespace nurec::cuda {
namespace {

// occupied: of a lidar, the tables of all sweeps (count_occupied).
template <bool CAMERA, bool SHORT>
__global__ void __maxnreg__(CAMERA ? 64 : 80) project_views_kernel(Views p, int const* occupied, Visibility out) {
    wait_then_launch_dependents();
    __shared__ View<float> view;
    int64_t const v = blockIdx.y;
    copy_numbers(view, &p.scene.rows[v].view);
    __syncthreads();
    Cells const& cells = p.rays.sweeps.cells;
    if (!CAMERA) occupied += v * (cells.bands + 1) * (3 * cells.columns + 1);
    ProjectParams const seen = {seen_from(p.scene, v), nullptr, CAMERA, cells};
    auto const opacity = [&](int64_t i) { return opacity_of(p.scene, v, i); };
    find_visible_in_block<CAMERA, SHORT, false>(seen, view, occupied, blockIdx.x * int64_t(THREADS), opacity, out,
                                                p.scene.g.n * v);
}

using ProjectViews = void (*)(Views, int const*, Visibility);

ProjectViews kernel_for(bool is_camera, int bits) {
    if (bits < DEPTH_BITS) return is_camera ? project_views_kernel<true, true> : project_views_kernel<false, true>;
    return is_camera ? project_views_kernel<true, false> : project_views_kernel<false, false>;
}

}  // namespace

Visibility project_views(Views const& p, int bits, Queue const& queue) {
    int64_t const n = p.scene.g.n, all = p.scene.views * n;
    Visibility const out = {queue.memory.array<uint8_t>(all), queue.memory.array<uint32_t>(all),
                            queue.memory.array<Bounds<float>>(all), bits, nullptr};
    if (!n) return out;
    if (p.rays.lenses) return project_through_lenses(p, out, queue), out;
    dim3 const blocks(blocks_for(n), unsigned(p.scene.views));
    int const* const occupied = p.rays.is_camera ? nullptr : count_occupied(p.rays.sweeps, queue);
    ProjectViews const kernel = kernel_for(p.rays.is_camera, bits);
    launch_pdl(kernel, blocks, THREADS, queue, p, occupied, out);
    return out;
}

}  // namespace nurec::cuda
