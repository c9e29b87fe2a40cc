// SPDX-License-Identifier: Apache-2.0
// The lidar's backward kernel: two features, intensity and ray drop, and the distance; every ray has an origin and a
// delay of its own.
#include "split_backward.cuh"

namespace nurec::cuda {
namespace {

template <class L, bool RAYS>
__global__ void __launch_bounds__(L::THREADS, L::MIN_BLOCKS)
    renderBackwardLidar(RenderParams p, RenderOutputs out, RenderGrads d) {
    backward_block<LidarNeeds<RAYS>, L>(p, out, d);
}

template <int PLAN>
void launch(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, cudaStream_t stream) {
    using More = LaunchOf<LIDAR_MORE, PLAN>;
    if (d.origins) return launch_backward<renderBackwardLidar<More, true>, More>(p, out, d, stream);
    using L = LaunchOf<LIDAR, PLAN>;
    launch_backward<renderBackwardLidar<L, false>, L>(p, out, d, stream);
}

}  // namespace

void lidar_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, int plan,
                    cudaStream_t stream) {
    if (plan == SPLIT) launch<SPLIT>(p, out, d, stream);
    if (plan == (SPLIT | BOUNDS)) launch<SPLIT | BOUNDS>(p, out, d, stream);
    if (plan == (SPLIT | STAGING)) launch<SPLIT | STAGING>(p, out, d, stream);
    if (plan == (SPLIT | BOUNDS | STAGING)) launch<SPLIT | BOUNDS | STAGING>(p, out, d, stream);
}

}  // namespace nurec::cuda
