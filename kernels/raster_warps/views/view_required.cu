// SPDX-License-Identifier: Apache-2.0
// The capacity that the lists of each view need.
#include "../../common/launch.cuh"
#include "train.h"

namespace nurec::cuda {
namespace {

__global__ void share_required_entries_kernel(Views p, WarpTiles b, int64_t const* offsets, int64_t const* most,
                                              int64_t* needed) {
    int64_t const v = blockIdx.x * int64_t(blockDim.x) + threadIdx.x, views = p.scene.views;
    if (v >= views) return;
    auto const begin = [&](int64_t view) {
        int64_t const first = b.is_camera ? SUPER_TILE_LISTS * view * b.super_tiles_of_image()
                                          : b.first[view * p.rays.sweeps.cells.bands];
        return offsets[lists_per_tile(b.is_camera) * first];
    };
    int64_t const missing = *most - begin(views);
    needed[v] = begin(v + 1) - begin(v) + (missing > 0 ? (missing + views - 1) / views : 0);
}

}  // namespace

void share_required(Views const& p, WarpTiles const& warp_tiles, int64_t const* offsets, int64_t const* most,
                    int64_t* needed, Queue const& queue) {
    share_required_entries_kernel<<<blocks_for(p.scene.views), THREADS, 0, queue.stream>>>(p, warp_tiles, offsets, most,
                                                                                           needed);
}

}  // namespace nurec::cuda
