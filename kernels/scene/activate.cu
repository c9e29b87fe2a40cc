// SPDX-License-Identifier: Apache-2.0
// A block takes THREADS Gaussians, all their numbers at once: everything is read before anything is written, so that
// memory has enough to do.
#include "../common/flat.cuh"
#include "../common/triples.cuh"
#include "../common/visible.cuh"
#include "activate.h"

namespace nurec::cuda {
namespace {

// Activates the Gaussians from `first` on. All threads of a block call it.
template <int C>
__device__ void activate_block(StoredGaussians const& in, Activations const& out, int64_t first) {
    int64_t const i = first + threadIdx.x;
    bool const there = i < in.n;
    float scales[3], lidar[C];
    Quat<float> const q = there ? load4(in.quats, i) : Quat<float>{1, 0, 0, 0};
    float const opacity = there ? in.opacity_logits[i] : 0.f;
    load_flat(in.log_scales, first, in.n, scales);
    load_flat(in.lidar_logits, first, in.n, lidar);
    if (there) {
        store4(out.quats, i, normalized(q));
        out.opacities[i] = sigmoid(opacity);
    }
    for (float& scale : scales) scale = exp(scale);
    store_flat(out.scales, first, in.n, scales);
#pragma unroll
    for (int k = 0; k < C; ++k) {
        unsigned const number = number_in_block(k);
        int64_t const row = first + number / C;
        if (row < in.n) activate_lidar(out, row, int(number % C), lidar[k]);
    }
}

template <int C>
__global__ void __launch_bounds__(THREADS) activate_gaussians_kernel(StoredGaussians in, Activations out) {
    for_visible_blocks(in.blocks, in.n, [&](int64_t first) { activate_block<C>(in, out, first); });
}

// A missing gradient is neither read nor written.
template <int C>
__global__ void __launch_bounds__(THREADS) activate_gaussians_backward_kernel(ActivationGrads in, StoredGrads out) {
    int64_t const first = first_row(), i = first + threadIdx.x;
    bool const turns = i < in.n && out.quats, fades = i < in.n && out.opacity_logits;
    float scales[3] = {}, d_scales[3] = {}, lidar[C] = {};
    Quat<float> const q = turns ? load4(in.quats, i) : Quat<float>{1, 0, 0, 0};
    Quat<float> const d_q = turns ? load4(in.d_quats, i) : Quat<float>{};
    float const opacity = fades ? in.opacities[i] : 0.f, d_opacity = fades ? in.d_opacities[i] : 0.f;
    if (out.log_scales) load_flat(in.scales, first, in.n, scales), load_flat(in.d_scales, first, in.n, d_scales);
#pragma unroll
    for (int k = 0; k < C; ++k) {
        unsigned const number = number_in_block(k);
        int64_t const row = first + number / C;
        if (row < in.n && out.lidar_logits) lidar[k] = lidar_backward(in, row, int(number % C));
    }
    if (turns) store4(out.quats, i, normalized_backward(q, d_q));
    if (fades) out.opacity_logits[i] = sigmoid_backward(opacity, d_opacity);
#pragma unroll
    for (int k = 0; k < 3; ++k) d_scales[k] *= scales[k];
    if (out.log_scales) store_flat(out.log_scales, first, in.n, d_scales);
    if (out.lidar_logits) store_flat(out.lidar_logits, first, in.n, lidar);
}

}  // namespace

void activate(StoredGaussians const& in, Activations const& out, Queue const& queue) {
    if (!in.n) return;
    for (float* const hidden : {out.opacities, out.lidar_opacities})
        if (in.blocks.listed && hidden) cudaMemsetAsync(hidden, 0, sizeof(float) * std::size_t(in.n), queue.stream);
    auto* const kernel = in.columns == LIDAR_VALUES ? activate_gaussians_kernel<LIDAR_VALUES>
                                                    : activate_gaussians_kernel<LIDAR_VALUES + 1>;
    kernel<<<blocks_for(in.blocks, in.n), THREADS, 0, queue.stream>>>(in, out);
}

void activate_backward(ActivationGrads const& in, StoredGrads const& out, Queue const& queue) {
    if (!in.n) return;
    if (in.columns == LIDAR_VALUES)
        activate_gaussians_backward_kernel<LIDAR_VALUES><<<blocks_for(in.n), THREADS, 0, queue.stream>>>(in, out);
    else
        activate_gaussians_backward_kernel<LIDAR_VALUES + 1><<<blocks_for(in.n), THREADS, 0, queue.stream>>>(in, out);
}

}  // namespace nurec::cuda
