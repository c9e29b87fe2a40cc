// SPDX-License-Identifier: Apache-2.0
// Which views may see which Gaussians. One thread a Gaussian of a view.
#include "../common/launch.cuh"
#include "../common/triples.cuh"
#include "../project/look.cuh"
#include "views.cuh"

namespace nurec::cuda {
namespace {

// occupied: those of all sweeps (count_occupied), of a lidar.
template <bool CAMERA>
__global__ void __maxnreg__(CAMERA ? 64 : 80) view_looks_kernel(Views p, int const* occupied, Looked out) {
    __shared__ View<float> view;
    int64_t const v = blockIdx.y;
    copy_numbers(view, &p.scene.rows[v].view);
    __syncthreads();
    Cells const& cells = p.rays.sweeps.cells;
    if (!CAMERA) occupied += v * (cells.bands + 1) * (3 * cells.columns + 1);
    ProjectParams const seen = {seen_from(p.scene, v), nullptr, CAMERA, cells};
    look_at<CAMERA>(seen, view, occupied, [&](int64_t i) { return opacity_of(p.scene, v, i); }, out, p.scene.g.n * v);
}

}  // namespace

Looked look_from_views(Views const& p, Queue const& queue) {
    int64_t const n = p.scene.g.n, all = p.scene.views * n;
    Looked const out = {queue.memory.array<uint8_t>(all), queue.memory.array<uint32_t>(all),
                        queue.memory.array<Bounds<float>>(all)};
    if (!n) return out;
    dim3 const blocks(blocks_for(n), unsigned(p.scene.views));
    if (p.rays.is_camera)
        view_looks_kernel<true><<<blocks, THREADS, 0, queue.stream>>>(p, nullptr, out);
    else
        view_looks_kernel<false><<<blocks, THREADS, 0, queue.stream>>>(p, count_occupied(p.rays.sweeps, queue), out);
    return out;
}

}  // namespace nurec::cuda
