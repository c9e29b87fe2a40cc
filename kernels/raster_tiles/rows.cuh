// SPDX-License-Identifier: Apache-2.0
// Rows of Gaussians: from parameters, and staged in shared memory a batch at a time.
#pragma once

#include <cstddef>

#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../math/blend.cuh"
#include "../project/moment_row.cuh"
#include "render.h"
#include "../project/load_rays.cuh"

namespace nurec::cuda {

constexpr int BATCH = 256;  // Gaussians that are staged together, one a thread

struct alignas(16) Row {  // a Gaussian as rays read it, or the gradient of that
    Frame<float> frame;
    float opacity;
    float features[MAX_FEATURES];
};
static_assert(sizeof(Row) == 80);

// Place of a number in a row that is read as an array of floats, side by side.
template <class R>
constexpr int place(std::size_t bytes) {
    static_assert(sizeof(R) % sizeof(float) == 0 && alignof(R) == 16);
    return static_cast<int>(bytes / sizeof(float));
}
constexpr int ROW_DRIFT = place<Row>(offsetof(Row, frame.drift)), ROW_K = place<Row>(offsetof(Row, frame.k));
constexpr int ROW_FEATURES = place<Row>(offsetof(Row, features));
static_assert(offsetof(Row, frame.M) == 0 && offsetof(Row, frame.g) == 9 * sizeof(float) && ROW_DRIFT == 12);
static_assert(ROW_K == 15 && offsetof(Row, opacity) == 16 * sizeof(float) && ROW_FEATURES == 17);
constexpr int MOMENT_DRIFT = place<MomentRow>(offsetof(MomentRow, moments.drift));
static_assert(offsetof(MomentRow, moments.xx) == 0 && offsetof(MomentRow, moments.xy) == 1 * sizeof(float));
static_assert(offsetof(MomentRow, moments.xz) == 2 * sizeof(float));
static_assert(offsetof(MomentRow, moments.yy) == 3 * sizeof(float));
static_assert(offsetof(MomentRow, moments.yz) == 4 * sizeof(float));
static_assert(offsetof(MomentRow, moments.zz) == 5 * sizeof(float));
static_assert(offsetof(MomentRow, moments.g) == 6 * sizeof(float) && MOMENT_DRIFT == 9);
static_assert(offsetof(MomentRow, moments.opacity) == 12 * sizeof(float));
static_assert(offsetof(MomentRow, features) == 13 * sizeof(float));

struct Staged : RenderParams {
    Row* rows;  // [N]
};

inline Staged staged(RenderParams const& p, Queue const& queue) {
    return {p, queue.memory.array<Row>(p.g.n)};
}

static __global__ void pack_rows_kernel(Staged p) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.g.n) return;
    Row row;
    row.frame = frame_of(p.g, i);
    row.opacity = p.g.opacities[i];
    for (int c = 0; c < MAX_FEATURES; ++c) row.features[c] = c < p.n_features ? p.features[p.n_features * i + c] : 0.f;
    p.rows[i] = row;
}

static void fill_rows(Staged const& p, cudaStream_t stream) {
    if (p.g.n) pack_rows_kernel<<<blocks_for(p.g.n), THREADS, 0, stream>>>(p);
}

// Copies 80 bytes as five vectors of 16.
__device__ inline void copy_row(Row& to, Row const& from) {
    auto const* a = reinterpret_cast<float4 const*>(&from);
    auto* b = reinterpret_cast<float4*>(&to);
#pragma unroll
    for (int k = 0; k < 5; ++k) b[k] = a[k];
}

}  // namespace nurec::cuda
