// SPDX-License-Identifier: Apache-2.0
// The backward pass: zeros for the sums of gradients, and the kernels that the plan picks.
#include "backward.cuh"

namespace nurec::cuda {

void render_backward(RenderParams const& given, RenderOutputs const& out, RenderGrads const& d, BackwardPlan plan,
                     Queue const& queue) {
    int64_t const n = given.g.n;
    if (!n) return;
    Staged const p = staged(given, queue);
    if (plan.split)
        split_backward(p, out, {d, nullptr, zeros<MomentRow>(n, queue)}, plan, queue.stream);
    else
        shared_backward(p, out, {d, zeros<Row>(n, queue), nullptr}, queue.stream);
}

}  // namespace nurec::cuda
