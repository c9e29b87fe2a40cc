// SPDX-License-Identifier: Apache-2.0
// The backward pass of parts, one warp each; formulas and sums are those of ../render/split_backward.cuh.
#include "../render/backward.cuh"
#include "../render/split_backward.cuh"
#include "parts.cuh"

namespace nurec::cuda {
namespace {

// That fit on a multiprocessor: 64 registers, which newer architectures would spill from, so there it is 80.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int BLOCKS = 6;
#else
constexpr int BLOCKS = 8;
#endif

// What passes through the parts before, whose weights lie no longer behind.
template <class N>
__device__ float start_part(RenderParams const& p, Parts const& parts, Work const& w, OneRay<N>& one) {
    float const start = passed(p, parts, w);
    for (int64_t j = w.first; j < w.part; ++j) {
        if (N::DISTANCE) one.behind -= left_of(p, parts, j, DISTANCE) * one.distance;
#pragma unroll
        for (int c = 0; c < N::FEATURES; ++c) one.behind -= left_of(p, parts, j, FEATURES + c) * one.features[c];
    }
    one.open = one.open && start >= T_MIN;
    return start;
}

// One Gaussian against the rays of a warp; false when all of them have ended. `one.T` is what passes since `start`.
template <class N>
__device__ bool blend_back(Row const& g, OneRay<N>& one, float start, MomentRow* to) {
    Response<float> const at = respond<N::MOVING>(g.frame, g.opacity, one.ray);
    bool const seen = one.open & reaches(at.alpha, at.t);
    if (!__any_sync(ALL_LANES, seen)) return true;
    float const before = start * one.T, q = one.T * (1 - at.alpha);
    bool const kept = seen & (start * q >= T_MIN);
    one.open = one.open & (kept | !seen);
    MomentRow sum = {};
    if (kept) {
        one.T = q;
        add_gradient<N>(g, at, at.alpha * before, before, one, sum);
    }
    add_row<N>(reinterpret_cast<float*>(to), sum);
    return __any_sync(ALL_LANES, one.open);
}

// Parts of one list add to the same rays.
__device__ void add3(float* to, int64_t i, Vec3<float> a) {
    atomicAdd(to + 3 * i, a.x), atomicAdd(to + 3 * i + 1, a.y), atomicAdd(to + 3 * i + 2, a.z);
}

template <class N>
__global__ void __launch_bounds__(32 * WARPS, N::RAYS ? 4 : BLOCKS)
    partBackward(Staged p, RenderOutputs out, Summed d, Parts parts) {
    __shared__ WarpBatch batches[WARPS];
    Work const w = my_work(p, parts);
    if (!w.parts) return;
    int const lane = int(threadIdx.x) % 32;
    WarpBatch& batch = batches[threadIdx.x / 32];
    int64_t const i = ray_of(p, w);
    OneRay<N> one = load_one<N>(p, out, d, i);
    float const start = start_part<N>(p, parts, w, one);
    bool going = __any_sync(ALL_LANES, one.open);
    int64_t const* list = w.list;
    for (int left = w.n; left > 0 && going; left -= 32, list += 32) {
        int const n = left < 32 ? left : 32, member = lane < n ? int(list[lane]) : 0;
        stage_rows(parts.rows, member, n, batch);
        __syncwarp();
        for (int k = 0; k < n && going; ++k)
            going = blend_back<N>(batch.rows[k], one, start, d.moments + __shfl_sync(ALL_LANES, member, k));
        __syncwarp();
    }
    if (N::RAYS && i >= 0) add3(d.directions, i, one.d_direction), add3(d.origins, i, one.d_origin);
}

template <class N>
void launch(Staged const& p, RenderOutputs const& out, Summed const& d, Parts const& parts, cudaStream_t stream) {
    if (parts.most) partBackward<N><<<blocks_of(parts), 32 * WARPS, 0, stream>>>(p, out, d, parts);
}

}  // namespace

void render_parts_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& given,
                           Parts const& parts, Queue const& queue) {
    if (!p.g.n) return;
    Summed const d = {given, nullptr, zeros<MomentRow>(p.g.n, queue)};
    bool const lidar = p.n_features == 2;
    auto* const kernel = lidar && d.origins ? launch<LidarNeeds<true>>
                         : lidar            ? launch<LidarNeeds<false>>
                         : d.origins        ? launch<CameraNeeds<true, true, true>>
                         : d.d_distance     ? launch<CameraNeeds<true, true, false>>
                         : p.moving         ? launch<CameraNeeds<true, false, false>>
                                            : launch<CameraNeeds<false, false, false>>;
    Staged const rows = {p, parts.rows};
    kernel(rows, out, d, parts, queue.stream);
    finish_moments(rows, d, queue.stream);
}

}  // namespace nurec::cuda
