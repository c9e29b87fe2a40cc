// SPDX-License-Identifier: Apache-2.0
// One variant of a sensor's backward kernel behind a C function. benchmarks/opt/sweep_variants.py compiles it with
// -DSWEEP_LIDAR, _MOVING, _THREADS, _MIN_BLOCKS, _RAYS, _ROWS, _MEMBERS and _AHEAD, or with -DSWEEP_SHARED alone: the
// kernel that serves both sensors, which the variants are compared with.
#include "../math/view_row.cuh"

#ifdef SWEEP_SHARED
#include "render_backward_shared.cu"
#else
#include "render_backward_split.cu"
#include "split_backward.cuh"
#endif

namespace nurec::cuda {
namespace {

#ifdef SWEEP_SHARED
using Sums = Row;

void launch_kernel(Staged const& p, RenderOutputs const& out, GradSums const& d, cudaStream_t stream) {
    renderBackward_kernel<false><<<static_cast<unsigned>(p.n_tiles), TILE_RAYS, 0, stream>>>(p, out, d);
}

void launch_all(Staged const& p, RenderOutputs const& out, GradSums const& d, cudaStream_t stream) {
    shared_backward(p, out, d, stream);
}
#else
using Sums = MomentRow;
using Variant = Launch<SWEEP_THREADS, SWEEP_MIN_BLOCKS, SWEEP_RAYS, SWEEP_ROWS, SWEEP_MEMBERS, SWEEP_AHEAD>;
#if SWEEP_LIDAR
using Asked = LidarNeeds<false>;
#else
using Asked = CameraNeeds<SWEEP_MOVING, false, false>;
#endif

__global__ void __launch_bounds__(Variant::THREADS, Variant::MIN_BLOCKS)
    swept_kernel(Staged p, RenderOutputs out, GradSums d) {
    backward_block<Asked, Variant>(p, out, d);
}

void launch_kernel(Staged const& p, RenderOutputs const& out, GradSums const& d, cudaStream_t stream) {
    launch_backward<swept_kernel, Variant>(p, out, d, stream);
}

void launch_all(Staged const& p, RenderOutputs const& out, GradSums const& d, cudaStream_t stream) {
    split_backward(p, out, d, {true, false, false}, stream);
}
#endif

}  // namespace

#ifndef SWEEP_SHARED
void camera_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, BackwardPlan, cudaStream_t stream) {
    launch_kernel(p, out, d, stream);
}

void lidar_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, BackwardPlan, cudaStream_t stream) {
    launch_kernel(p, out, d, stream);
}
#endif

}  // namespace nurec::cuda

// Addresses and sizes, as Pass of sweep_variants.py lists them.
struct Pass {
    float *still_means, *still_quats, *means, *quats, *velocities, *scales, *opacities, *features;
    float *origins, *directions, *delays, *targets;
    int64_t *rays, *offsets, *gaussians;
    uint8_t const* visible;  // which these kernels do not ask
    nurec::ViewRow<float>* view;
    nurec::cuda::Row* rows;
    float *out, *distance, *transmittance, *d_out, *d_distance, *d_transmittance;
    void* sums;
    nurec::GaussianGrads d_gaussians;
    float* d_features;
    int64_t n, n_still, n_features, n_rays, n_tiles, in_tile, moving;
};

// The kernel alone, or with what stands around it; gives the CUDA error.
extern "C" int run_backward(Pass const* a, int all, void* stream) {
    using namespace nurec::cuda;
    nurec::Gaussians const g = {a->n,     a->n_still,    a->still_means, a->still_quats, a->means,
                                a->quats, a->velocities, a->scales,      a->opacities,   &a->view->centre};
    nurec::RenderParams const given = {g,           a->n_features, a->n_rays,     a->n_tiles, a->in_tile,
                                       a->features, a->origins,    a->directions, a->delays,  nullptr,
                                       a->rays,     a->offsets,    a->gaussians,  nullptr,    a->moving != 0};
    nurec::RenderOutputs const out = {a->out, a->distance, a->transmittance, nullptr};
    nurec::RenderGrads d = {a->d_out, a->d_distance, a->d_transmittance, a->d_gaussians, a->d_features};
#ifdef SWEEP_SHARED
    GradSums const summed = {d, static_cast<Row*>(a->sums), nullptr};
#else
    if (!SWEEP_LIDAR) d.d_distance = nullptr;
    GradSums const summed = {d, nullptr, static_cast<MomentRow*>(a->sums)};
#endif
    (all ? launch_all : launch_kernel)({given, a->rows}, out, summed, static_cast<cudaStream_t>(stream));
    return static_cast<int>(cudaGetLastError());
}
