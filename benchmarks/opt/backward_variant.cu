// SPDX-License-Identifier: Apache-2.0
// One variant of a sensor's backward kernel behind a C function. benchmarks/opt/sweep_variants.py compiles it with
// -DSWEEP_LIDAR, _MOVING, _THREADS, _MIN_BLOCKS, _RAYS, _ROWS, _MEMBERS and _AHEAD, or with -DSWEEP_SHARED alone: the
// kernel that serves both sensors, which the variants are compared with.
#ifdef SWEEP_SHARED
#include "render_backward.cu"
#else
#include "render_backward_split.cu"
#include "split_backward.cuh"
#endif

namespace nurec::cuda {
namespace {

#ifdef SWEEP_SHARED
using Sums = Row;

void launch_kernel(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, cudaStream_t stream) {
    renderBackward<false><<<static_cast<unsigned>(p.n_tiles), TILE_RAYS, 0, stream>>>(p, out, d);
}

void launch_all(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, cudaStream_t stream) {
    render_backward(p, out, d, stream);
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
    swept(RenderParams p, RenderOutputs out, RenderGrads d) {
    backward_block<Asked, Variant>(p, out, d);
}

void launch_kernel(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, cudaStream_t stream) {
    launch_backward<swept, Variant>(p, out, d, stream);
}

void launch_all(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, cudaStream_t stream) {
    split_backward(p, out, d, SPLIT, stream);
}
#endif

struct Reader {  // of numbers and addresses that lie one behind another
    int64_t const* at;

    int64_t number() { return *at++; }
    template <class T>
    T* pointer() {
        return reinterpret_cast<T*>(*at++);
    }
};

}  // namespace

#ifndef SWEEP_SHARED
void camera_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, int, cudaStream_t stream) {
    launch_kernel(p, out, d, stream);
}

void lidar_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& d, int, cudaStream_t stream) {
    launch_kernel(p, out, d, stream);
}
#endif

}  // namespace nurec::cuda

// The kernel alone, or with what stands around it; gives the CUDA error. Braces are evaluated from left to right.
extern "C" int run_backward(int64_t const* arguments, int all, void* stream) {
    using namespace nurec::cuda;
    using F = float;
    using I = int64_t;
    Reader a = {arguments};
    nurec::Gaussians const g = {a.number(),           a.number(),           a.pointer<F const>(),
                                a.pointer<F const>(), a.pointer<F const>(), a.pointer<F const>(),
                                a.pointer<F const>(), a.pointer<F const>(), a.pointer<F const>()};
    RenderParams const p = {g,
                            a.number(),
                            a.number(),
                            a.number(),
                            a.number(),
                            a.pointer<F const>(),
                            a.pointer<F const>(),
                            a.pointer<F const>(),
                            a.pointer<F const>(),
                            a.pointer<I const>(),
                            a.pointer<I const>(),
                            a.pointer<I const>(),
                            a.number() != 0,
                            a.pointer<Row>()};
    RenderOutputs const out = {a.pointer<F>(), a.pointer<F>(), a.pointer<F>(), nullptr};
    RenderGrads d = {a.pointer<F const>(), a.pointer<F const>(), a.pointer<F const>()};
    auto* const sums = a.pointer<Sums>();
#ifdef SWEEP_SHARED
    d.rows = sums;
#else
    d.moments = sums;
    if (!SWEEP_LIDAR) d.d_distance = nullptr;
#endif
    d.g = {a.pointer<F>(), a.pointer<F>(), a.pointer<F>(), a.pointer<F>(),
           a.pointer<F>(), a.pointer<F>(), a.pointer<F>()};
    d.features = a.pointer<F>();
    (all ? launch_all : launch_kernel)(p, out, d, static_cast<cudaStream_t>(stream));
    return static_cast<int>(cudaGetLastError());
}
