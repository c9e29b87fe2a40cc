// SPDX-License-Identifier: Apache-2.0
// Sums the gradients of rows to those of the Gaussians' placements and shapes. A thread takes a Gaussian and loops over
// the views, so that what the views share is written once.
#include "../../common/warp.cuh"
#include "../../sensor/pose_gradient.h"
#include "../../project/gaussian_row.cuh"
#include "../../project/moment_row.cuh"
#include "train.h"
#include "views.cuh"

namespace nurec::cuda {
namespace {

struct ViewGrad {
    GaussianGrad<float> g;
    float opacity, features[2];  // features of a lidar
};

template <bool MOVING, int C>
__device__ ViewGrad view_grad_of(ViewedScene const& scene, int64_t view, int64_t i, MomentRow const& sum) {
    Gaussians const g = seen_from(scene, view);
    Frame<float> const f = frame_of(g, i);
    Alignment<float> const turn = alignment_of(frame_on<MOVING>(&scene.rows[view].path, f));
    Moments<float> const m = unalign(turn, opacity_of(scene, view, i), sum.moments);
    return {moments_backward(quat_of(g, i), load3(g.scales, i), f, m),
            m.opacity,
            {C == 2 ? sum.features[0] : 0.f, C == 2 ? sum.features[1] : 0.f}};
}

__device__ void add(ViewGrad const& one, ViewGrad& sum) {
    Quat<float>& q = sum.g.q;
    sum.g.mean = sum.g.mean + one.g.mean, sum.g.s = sum.g.s + one.g.s, sum.opacity += one.opacity;
    q.w += one.g.q.w, q.x += one.g.q.x, q.y += one.g.q.y, q.z += one.g.q.z;
    sum.features[0] += one.features[0], sum.features[1] += one.features[1];
}

// Adds the pose gradient of a view. All lanes of a warp call it. Moving the sensor moves all Gaussians the other way.
__device__ void add_pose_grad(ViewedScene const& scene, int64_t view, int64_t i, bool there, ViewGrad const& one,
                              float* pose_grads) {
    if (!__any_sync(ALL_LANES, there)) return;
    Correction<float> c = {};
    if (there) {
        Gaussians const g = seen_from(scene, view);
        c = pose_vjp(mean_of(g, i), quat_of(g, i), one.g.mean, one.g.q);
    }
    float values[POSE_DELTA_FLOATS] = {c.turn.x, c.turn.y, c.turn.z, c.shift.x, c.shift.y, c.shift.z};
    int const lane = int(threadIdx.x) % 32, value = summed_value<POSE_DELTA_FLOATS>(lane);
    float const sum = sums_by_halves(values, lane);
    if (value >= 0 && sum != 0) atomicAdd(pose_grads + POSE_DELTA_FLOATS * view + value, sum);
}

__device__ void store_moving(SceneGrads const& d, int64_t place, ViewGrad const& one) {
    store3(d.g.means, place, one.g.mean), store_quat(d.g.quats, place, one.g.q);
    store3(d.g.velocities, place, one.g.v), d.moving_opacities[place] = one.opacity;
}

template <bool MOVING, int C>
__global__ void __launch_bounds__(THREADS)
    differentiate_view_gaussians_kernel(ViewedScene scene, RowSums sums, SceneGrads d) {
    int64_t const i = blockIdx.x * int64_t(THREADS) + threadIdx.x, n = scene.g.n, still = scene.g.n_still;
    bool const moves = i >= still && i < n;
    ViewGrad sum = {};
    for (int64_t v = 0; v < scene.views; ++v) {
        int const row = i < n ? sums.places[n * v + i] : -1;
        ViewGrad one = {};
        if (row >= 0) one = view_grad_of<MOVING, C>(scene, v, i, sums.moments[row]);
        if (d.pose_grads) add_pose_grad(scene, v, i, row >= 0, one, d.pose_grads);
        if (moves) store_moving(d, (n - still) * v + i - still, one);
        add(one, sum);
    }
    if (i >= n) return;
    store3(d.g.scales, i, sum.g.s);
    if (C == 2) d.lidar[2 * i] = sum.features[0], d.lidar[2 * i + 1] = sum.features[1];
    if (moves) return;
    store3(d.g.still_means, i, sum.g.mean), store_quat(d.g.still_quats, i, sum.g.q);
    d.g.opacities[i] = sum.opacity;
}

}  // namespace

void differentiate_views(Views const& p, RowSums const& sums, SceneGrads const& d, Queue const& queue) {
    int64_t const n = p.scene.g.n;
    if (!n) return;
    auto* const kernel = !p.rays.is_camera ? differentiate_view_gaussians_kernel<true, 2>
                         : p.rays.moving   ? differentiate_view_gaussians_kernel<true, 3>
                                           : differentiate_view_gaussians_kernel<false, 3>;
    kernel<<<blocks_for(n), THREADS, 0, queue.stream>>>(p.scene, sums, d);
}

}  // namespace nurec::cuda
