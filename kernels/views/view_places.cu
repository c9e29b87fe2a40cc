// SPDX-License-Identifier: Apache-2.0
// Where the rows of views lie, and how much room their lists need.
#include "../common/launch.cuh"
#include "learn.h"

namespace nurec::cuda {
namespace {

// Behind the rows that are seen stand some without candidates.
__global__ void store_row_indices_kernel(int64_t n, uint32_t const* numbers, int64_t const* begins, int* places) {
    int64_t const r = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (r < n && begins[r + 1] > begins[r]) places[numbers[r]] = int(r);
}

__global__ void share_required_entries_kernel(Views p, Bundles b, int64_t const* offsets, int64_t const* most,
                                              int64_t* needed) {
    int64_t const v = blockIdx.x * int64_t(blockDim.x) + threadIdx.x, views = p.scene.views;
    if (v >= views) return;
    auto const begin = [&](int64_t view) {
        int64_t const first =
            b.is_camera ? CLUSTER * view * b.clusters_of_image() : b.first[view * p.rays.sweeps.cells.bands];
        return offsets[lists_of_bundle(b.is_camera) * first];
    };
    int64_t const missing = *most - begin(views);
    needed[v] = begin(v + 1) - begin(v) + (missing > 0 ? (missing + views - 1) / views : 0);
}

}  // namespace

void place_rows(Views const& p, int64_t n_rows, uint32_t const* numbers, int64_t const* begins, int* places,
                Queue const& queue) {
    cudaMemsetAsync(places, 0xff, sizeof(int) * static_cast<std::size_t>(p.scene.views * p.scene.g.n), queue.stream);
    if (n_rows)
        store_row_indices_kernel<<<blocks_for(n_rows), THREADS, 0, queue.stream>>>(n_rows, numbers, begins, places);
}

void share_needed(Views const& p, Bundles const& bundles, int64_t const* offsets, int64_t const* most, int64_t* needed,
                  Queue const& queue) {
    share_required_entries_kernel<<<blocks_for(p.scene.views), THREADS, 0, queue.stream>>>(p, bundles, offsets, most,
                                                                                           needed);
}

}  // namespace nurec::cuda
