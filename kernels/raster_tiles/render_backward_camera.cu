// SPDX-License-Identifier: Apache-2.0
// The camera's backward kernel: three features, and no distance and no origins where nothing asks for them. A training
// step does not: its loss knows the colour, and the origins of a global shutter are all the same.
#include "split_backward.cuh"

namespace nurec::cuda {
namespace {

template <class L, bool MOVING, bool DISTANCE, bool RAYS>
__global__ void __launch_bounds__(L::THREADS, L::MIN_BLOCKS)
    renderBackwardCamera_kernel(Staged p, RenderOutputs out, GradSums d) {
    backward_block<CameraNeeds<MOVING, DISTANCE, RAYS>, L>(p, out, d);
}

template <class L>
void launch_training(Staged const& p, RenderOutputs const& out, GradSums const& d, cudaStream_t stream) {
    if (p.moving) return launch_backward<renderBackwardCamera_kernel<L, true, false, false>, L>(p, out, d, stream);
    launch_backward<renderBackwardCamera_kernel<L, false, false, false>, L>(p, out, d, stream);
}

template <bool BOUNDS, bool STAGING>
void launch(Staged const& p, RenderOutputs const& out, GradSums const& d, cudaStream_t stream) {
    using More = LaunchOf<CAMERA_MORE, BOUNDS, STAGING>;
    if (d.origins) return launch_backward<renderBackwardCamera_kernel<More, true, true, true>, More>(p, out, d, stream);
    if (d.d_distance)
        return launch_backward<renderBackwardCamera_kernel<More, true, true, false>, More>(p, out, d, stream);
    if (p.n_tiles < MANY_TILES) return launch_training<LaunchOf<CAMERA_FEW, BOUNDS, STAGING>>(p, out, d, stream);
    launch_training<LaunchOf<CAMERA, BOUNDS, STAGING>>(p, out, d, stream);
}

}  // namespace

void camera_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, BackwardPlan plan,
                     cudaStream_t stream) {
    if (plan.launch_bounds)
        (plan.half_staging ? launch<true, true> : launch<true, false>)(p, out, d, stream);
    else
        (plan.half_staging ? launch<false, true> : launch<false, false>)(p, out, d, stream);
}

}  // namespace nurec::cuda
