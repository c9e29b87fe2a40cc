// SPDX-License-Identifier: Apache-2.0
// Moments of several views: from the rows of their lists to a buffer for each view, as a single view fills it.
#include "../../common/launch.cuh"
#include "train.h"

namespace nurec::cuda {
namespace {

constexpr int64_t ROW_VECTORS = sizeof(MomentRow) / sizeof(float4);
constexpr unsigned BLOCKS_PER_SM = 8;

__device__ int64_t end_of(ViewRows const& rows) {
    return smaller(rows.most, *rows.count);
}

__device__ int64_t first_index() {
    return blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
}

__device__ int64_t grid_threads() {
    return gridDim.x * int64_t(blockDim.x);
}

__global__ void clear_view_moments_kernel(ViewRows rows, float4* moments, ViewMoments to) {
    int64_t const end = ROW_VECTORS * end_of(rows), vectors = (to.n + 15) / 16;
    for (int64_t k = first_index(); k < end; k += grid_threads()) moments[k] = make_float4(0, 0, 0, 0);
    for (int64_t k = first_index(); k < vectors * to.views; k += grid_threads())
        reinterpret_cast<float4*>(to.seen(k / vectors))[k % vectors] = make_float4(0, 0, 0, 0);
}

// A thread copies a vector.
__global__ void scatter_view_moments_kernel(ViewRows rows, float4 const* moments, ViewMoments to) {
    int64_t const end = ROW_VECTORS * end_of(rows);
    for (int64_t k = first_index(); k < end; k += grid_threads()) {
        int64_t const number = rows.numbers[k / ROW_VECTORS], view = number / to.n, i = number - to.n * view;
        reinterpret_cast<float4*>(to.of(view) + i)[k % ROW_VECTORS] = moments[k];
        if (k % ROW_VECTORS == 0) to.seen(view)[i] = 1;
    }
}

// A thread copies a number.
__global__ void gather_view_features_kernel(ViewMoments from, float* d_features) {
    int64_t const k = first_index(), instance = k / MAX_FEATURES, view = instance / from.n;
    if (view >= from.views) return;
    int64_t const i = instance - from.n * view;
    d_features[k] = from.seen(view)[i] ? from.of(view)[i].features[k % MAX_FEATURES] : 0.f;
}

unsigned blocks_of(int64_t vectors) {
    auto const most = BLOCKS_PER_SM * unsigned(multiprocessors());
    return smaller(blocks_for(vectors), most);
}

}  // namespace

void clear_view_moments(ViewRows const& rows, MomentRow* moments, ViewMoments const& to, Queue const& queue) {
    unsigned const blocks = blocks_of(larger(ROW_VECTORS * rows.most, (to.n + 15) / 16 * to.views));
    if (!blocks) return;
    clear_view_moments_kernel<<<blocks, THREADS, 0, queue.stream>>>(rows, reinterpret_cast<float4*>(moments), to);
}

void scatter_view_moments(ViewRows const& rows, MomentRow const* moments, ViewMoments const& to, Queue const& queue) {
    unsigned const blocks = blocks_of(ROW_VECTORS * rows.most);
    if (!blocks) return;
    scatter_view_moments_kernel<<<blocks, THREADS, 0, queue.stream>>>(rows, reinterpret_cast<float4 const*>(moments),
                                                                      to);
}

void gather_view_features(ViewMoments const& from, float* d_features, Queue const& queue) {
    unsigned const blocks = blocks_for(MAX_FEATURES * from.n * from.views);
    if (blocks) gather_view_features_kernel<<<blocks, THREADS, 0, queue.stream>>>(from, d_features);
}

}  // namespace nurec::cuda
