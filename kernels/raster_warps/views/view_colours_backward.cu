// SPDX-License-Identifier: Apache-2.0
// The gradients of harmonics over several views: the coefficients of a Gaussian are read once, if any view has a
// gradient of its colour, and their gradients are written once. So are those of its places.
#include "../../math/sh.cuh"
#include "../../math/view_direction.cuh"
#include "../../appearance/colour_blocks.cuh"
#include "../../project/moment_row.cuh"
#include "train.h"
#include "views.cuh"

namespace nurec::cuda {
namespace {

// S: coefficients.
template <int S>
struct ColourSums {
    float sh[3 * S] = {};
    Vec3<float> mean = {0, 0, 0};
};

template <int S>
__device__ void add_coefficients(Vec3<float> direction, Vec3<float> colour, float (&sums)[3 * S]) {
    float b[S];
    sh_basis(direction, b);
#pragma unroll
    for (int k = 0; k < S; ++k) {
        sums[3 * k] += b[k] * colour.x, sums[3 * k + 1] += b[k] * colour.y, sums[3 * k + 2] += b[k] * colour.z;
    }
}

// Adds one view of a Gaussian. Returns the gradient of its node's rotation.
template <int S, class Numbers>
__device__ Quat<float> add_view(ViewedScene const& scene, int64_t view, int64_t i, Numbers const& sh,
                                Vec3<float> d_colour, ColourSums<S>& sums, Vec3<float>& d_mean) {
    int64_t const still = scene.g.n_still, a = i - still;
    Vec3<float> const r = mean_of(seen_from(scene, view), i);
    Quat<float> const q = a < 0 ? Quat<float>{1, 0, 0, 0} : load_quat(scene.frames, (scene.g.n - still) * view + a);
    Vec3<float> const direction = a < 0 ? view_direction(r) : local_view_direction(q, r);
    ShRank1Grad<float> const found = sh_colour_rank1_backward<S>(sh, direction, d_colour);
    add_coefficients<S>(direction, found.colour, sums.sh);
    if (a < 0) {
        d_mean = view_direction_backward(r, found.direction);
        return {0, 0, 0, 0};
    }
    RotateGrad<float> const back = local_view_direction_backward(q, r, found.direction);
    d_mean = back.v;
    return back.q;
}

// Returns the colour's gradient from view v; 0 if the view does not see it.
__device__ Vec3<float> colour_from(ViewMoments const& in, int64_t n, int64_t v, int64_t i) {
    return i < n && in.seen(v)[i] ? load3(in.of(v)[i].features, 0) : Vec3<float>{0, 0, 0};
}

__device__ bool any_view(ViewMoments const& in, ViewedScene const& scene, int64_t i) {
    for (int64_t v = 0; v < scene.views; ++v)
        if (is_some(colour_from(in, scene.g.n, v, i))) return true;
    return false;
}

template <int S>
__global__ void __launch_bounds__(GAUSSIANS)
    differentiate_view_colours_kernel(ViewedScene scene, ViewMoments in, Nodes nodes, ColourGrads d) {
    __shared__ WantedRows<S> rows;
    int64_t const begin = blockIdx.x * int64_t(GAUSSIANS), i = begin + threadIdx.x, n = scene.g.n,
                  a = i - scene.g.n_still;
    bool const moves = a >= 0 && i < n;
    int const node = moves ? int(nodes.of[a]) : -1;
    rows.read(scene.sh, begin, n, any_view(in, scene, i));
    auto const mine = rows.mine();
    ColourSums<S> sums;
    for (int64_t v = 0; v < scene.views; ++v) {
        Vec3<float> const d_colour = colour_from(in, n, v, i);
        Quat<float> d_rotation = {0, 0, 0, 0};
        Vec3<float> d_mean = {0, 0, 0};
        if (is_some(d_colour)) d_rotation = add_view<S>(scene, v, i, mine, d_colour, sums, d_mean);
        if (moves)
            store3(d.means, (n - scene.g.n_still) * v + a, d_mean);
        else
            sums.mean = sums.mean + d_mean;
        add_to_rotations(d.rotations + 4 * nodes.n * v, node, d_rotation);
    }
    if (i < n && !moves) store3(d.still_means, i, sums.mean);
#pragma unroll
    for (int c = 0; c < 3 * S; ++c) mine[c] = sums.sh[c];
    __syncthreads();
    rows.write(d.sh, n);
}

}  // namespace

void differentiate_colours(ViewedScene const& scene, ViewMoments const& moments, Nodes const& nodes,
                           ColourGrads const& d, Queue const& queue) {
    if (!scene.g.n) return;
    int64_t const s = scene.coefficients;
    auto* const kernel = s == 1   ? differentiate_view_colours_kernel<1>
                         : s == 4 ? differentiate_view_colours_kernel<4>
                         : s == 9 ? differentiate_view_colours_kernel<9>
                                  : differentiate_view_colours_kernel<16>;
    kernel<<<blocks_of(scene.g.n), GAUSSIANS, 0, queue.stream>>>(scene, moments, nodes, d);
}

}  // namespace nurec::cuda
