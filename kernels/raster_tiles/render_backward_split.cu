// SPDX-License-Identifier: Apache-2.0
// The kernels before and after the split ones: they pack rows, and turn moments into gradients of the parameters.
#include "backward.cuh"

namespace nurec::cuda {
namespace {

__global__ void differentiate_moments_kernel(Staged p, GradSums d) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.g.n) return;
    MomentRow const& sum = d.moments[i];
    GaussianGrad<float> const g = moments_backward(quat_of(p.g, i), load3(p.g.scales, i), p.rows[i].frame, sum.moments);
    store_placed(d.g, p.g.n_still, i, g.mean, g.q, g.v);
    store3(d.g.scales, i, g.s);
    d.g.opacities[i] = sum.moments.opacity;
    for (int c = 0; c < p.n_features; ++c) d.features[p.n_features * i + c] = sum.features[c];
}

}  // namespace

void finish_moments(Staged const& p, GradSums const& d, cudaStream_t stream) {
    if (p.g.n) differentiate_moments_kernel<<<blocks_for(p.g.n), THREADS, 0, stream>>>(p, d);
}

void split_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, BackwardPlan plan,
                    cudaStream_t stream) {
    fill_rows(p, stream);
    (p.n_features == 3 ? camera_backward : lidar_backward)(p, out, d, plan, stream);
    finish_moments(p, d, stream);
}

}  // namespace nurec::cuda
