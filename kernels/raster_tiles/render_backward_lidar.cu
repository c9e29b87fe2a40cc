// SPDX-License-Identifier: Apache-2.0
// The lidar's backward kernel: two features, intensity and ray drop, and the distance; every ray has an origin and a
// delay of its own.
#include "split_backward.cuh"

namespace nurec::cuda {
namespace {

template <class L, bool RAYS>
__global__ void __launch_bounds__(L::THREADS, L::MIN_BLOCKS)
    renderBackwardLidar_kernel(Staged p, RenderOutputs out, GradSums d) {
    backward_block<LidarNeeds<RAYS>, L>(p, out, d);
}

template <bool BOUNDS, bool STAGING>
void launch(Staged const& p, RenderOutputs const& out, GradSums const& d, cudaStream_t stream) {
    using More = LaunchOf<LIDAR_MORE, BOUNDS, STAGING>;
    if (d.origins) return launch_backward<renderBackwardLidar_kernel<More, true>, More>(p, out, d, stream);
    using L = LaunchOf<LIDAR, BOUNDS, STAGING>;
    launch_backward<renderBackwardLidar_kernel<L, false>, L>(p, out, d, stream);
}

}  // namespace

void lidar_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, BackwardPlan plan,
                    cudaStream_t stream) {
    if (plan.launch_bounds)
        (plan.half_staging ? launch<true, true> : launch<true, false>)(p, out, d, stream);
    else
        (plan.half_staging ? launch<false, true> : launch<false, false>)(p, out, d, stream);
}

}  // namespace nurec::cuda
