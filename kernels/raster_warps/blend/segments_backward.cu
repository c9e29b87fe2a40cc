// SPDX-License-Identifier: Apache-2.0
// The backward pass of segmented blending. A warp takes a batch of Gaussians of a segment at a time, in two phases.
// First a lane is a ray: front to back it finds the weight of each Gaussian and the gradient of its opacity, and stores
// both. Then a lane is a Gaussian (or several lanes are): it sums over the rays in registers (math/moments.cuh).
// Reducing every number of every Gaussian over the lanes of a warp took as long as everything else.
#include "../../common/gaussians.cuh"
#include "../../common/launch.cuh"
#include "pairs.cuh"

namespace nurec::cuda {
namespace {

// Blocks that fit on a multiprocessor; no instance spills from the registers that this leaves.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int BLOCKS_PER_SM = 6, BLOCKS_PER_SM_MOVING = 5;
#else
constexpr int BLOCKS_PER_SM = 8, BLOCKS_PER_SM_MOVING = 6;
#endif

constexpr int AHEAD = 4;

template <class N>
struct Batch {
    BatchRows<N> rows;
    PairStore<N> pairs;
};

// Returns the transmittance of the earlier segments, and subtracts their contributions from the sum behind.
template <class N>
__device__ float start_segment(Segments const& segments, SegmentRange const& w, OneRay<N>& one) {
    constexpr int C = N::FEATURES;
    float const start = transmittance_before<C>(segments, w);
    for (int64_t j = w.first; j < w.segment; ++j) {
        if (N::DISTANCE) one.behind -= segment_field<C>(segments, j, DISTANCE) * one.distance;
#pragma unroll
        for (int c = 0; c < C; ++c) one.behind -= segment_field<C>(segments, j, FEATURES + c) * one.features[c];
    }
    one.open = one.open && start >= T_MIN;
    return start;
}

// Adds to the gradient of a ray. `d_peak` is that of a PairGrad.
template <class N>
__device__ void add_to_ray(RowFor<N> const& g, AlignedResponse<float> const& at, float d_peak, float d_t,
                           OneRay<N>& one) {
    RayMoments<float> const a =
        aligned_ray_moments<N::MOVING, N::DISTANCE>(at.g, at.e, at.inverse, g.frame.unit, d_peak, d_t);
    float const scale = 1 / g.frame.unit;
    one.d_direction = one.d_direction + transposed_times(g.frame.M, (scale * at.t) * a.w + a.n);
    one.d_origin = one.d_origin + scale * transposed_times(g.frame.M, a.w);
}

// Blends a Gaussian with a ray. Returns whether it contributes, and its gradients in `gain`. `one.T` is the
// transmittance since `start`.
template <class N>
__device__ bool blend_pair(RowFor<N> const& g, AlignedResponse<float> const& at, RangeTarget<float> target,
                           OneRay<N>& one, float start, PairGrad& gain) {
    bool const seen = one.open & reaches(at.alpha, at.t);
    float const before = start * one.T, q = one.T * (1 - at.alpha);
    bool const kept = seen & (start * q >= T_MIN);
    one.open = one.open & (kept | !seen);
    if (!kept) return false;
    one.T = q;
    float const w = at.alpha * before;
    float slope = distance_slope<N>(one.distance, target, at.t);
#pragma unroll
    for (int c = 0; c < N::FEATURES; ++c) slope += g.features[c] * one.features[c];
    float const d_alpha = blend_backward(at.alpha, w, before, slope, one.behind);
    gain = {w, at.peak <= ALPHA_MAX ? d_alpha * at.peak : 0.f};
    if (N::RAYS) add_to_ray<N>(g, at, gain.d_peak, distance_backward<N>(one.distance, target, at.t, w), one);
    return true;
}

// The first phase of a batch, n Gaussians of the group. Returns whether any ray of the warp meets any of them. It
// evaluates AHEAD responses together, because they do not depend on one another. If another group of the warp has more
// Gaussians, it also evaluates unwritten rows; their responses are not used.
template <class N>
__device__ bool blend_batch(Batch<N>& batch, int n, OneRay<N>& one, float start) {
    constexpr int P = LANES<N::FEATURES>;
    int const most = max_over_groups<P>(n);
    auto const& rows = batch.rows[group_of_warp<N::FEATURES>()].of;
    bool any = false;
    auto const respond = [&](int k) { return evaluate(rows[k].frame, one.ray.d, one.ray.dt); };
    auto const keep = [&](int k, AlignedResponse<float> const& at) {
        if (P < 32 && k >= n) return;
        PairGrad gain = {};
        bool const met = blend_pair<N>(rows[k], at, batch.pairs.target(), one, start, gain);
        batch.pairs.store_pair(k, met, at, gain), any |= met;
    };
    int k = 0;
    for (; k + AHEAD <= most; k += AHEAD) {
        AlignedResponse<float> at[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) at[a] = respond(k + a);
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) keep(k + a, at[a]);
    }
    for (; k < most; ++k) keep(k, respond(k));
    __syncwarp();
    return __any_sync(ALL_LANES, any);
}

// Segments of one list add to the same rays.
__device__ void add3(float* to, int64_t i, Vec3<float> a) {
    atomicAdd(to + 3 * i, a.x), atomicAdd(to + 3 * i + 1, a.y), atomicAdd(to + 3 * i + 2, a.z);
}

template <class N>
constexpr int blocks_for_needs() {
    if (N::RAYS || (N::FEATURES == 3 && N::DISTANCE)) return 4;  // training does not need these
    return N::MOVING ? BLOCKS_PER_SM_MOVING : BLOCKS_PER_SM;
}

template <class N>
constexpr bool QUEUED = !N::DISTANCE;

template <class N>
__device__ void differentiate_segment(RenderParams const& p, RenderOutputs const& out, GradSums const& d,
                                      Segments const& segments, SegmentRange const& w, Batch<N>& batch) {
    constexpr int C = N::FEATURES, M = GROUP_BATCH<N>;
    int const lane = lane_of_group<C>();
    int64_t const i = ray_of<C>(p, w);
    OneRay<N> one = load_one<N>(p, out, d, i);
    float const start = start_segment<N>(segments, w, one);
    if (!__any_sync(ALL_LANES, one.open)) return;
    batch.pairs.store_ray(one);
    auto const* rows = reinterpret_cast<RowFor<N> const*>(segments.rows);
    int const* entries = w.entries;
    for (int left = w.n; GROUPS<C> > 1 || left > 0; left -= M, entries += M) {
        int const n = left < M ? left : M, member = lane < n ? entries[lane] : 0;
        stage_rows<C, M>(rows, member, n, batch.rows[group_of_warp<C>()].of);
        if (blend_batch<N>(batch, n, one, start)) batch.pairs.add(batch.rows, n, member, d.moments);
        if (!__any_sync(ALL_LANES, (GROUPS<C> == 1 || left > M) && one.open)) break;
        __syncwarp();
    }
    if (N::RAYS && i >= 0) add3(d.directions, i, one.d_direction), add3(d.origins, i, one.d_origin);
}

// On images, warps fetch segments until none is left, so no warp waits for the longest one of its block.
template <class N>
__global__ void __launch_bounds__(32 * WARPS, blocks_for_needs<N>())
    renderBackwardSegments_kernel(RenderParams p, RenderOutputs out, GradSums d, Segments segments, unsigned* next) {
    __shared__ Batch<N> batches[WARPS];
    Batch<N>& batch = batches[threadIdx.x / 32];
    if constexpr (QUEUED<N>) {
        for_each_segment(p, segments, next, [&](int64_t segment) {
            differentiate_segment<N>(p, out, d, segments, segment_at(p, segments, segment), batch);
        });
    } else {
        SegmentRange const w = segment_at(p, segments, own_segment<N::FEATURES>());
        if (__any_sync(ALL_LANES, w.segments)) differentiate_segment<N>(p, out, d, segments, w, batch);
    }
}

template <class N>
void launch(RenderParams const& p, RenderOutputs const& out, GradSums const& d, Segments const& segments,
            Queue const& queue) {
    if (!segments.most) return;
    unsigned* const next = QUEUED<N> ? zeros<unsigned>(1, queue) : nullptr;
    unsigned const blocks =
        QUEUED<N> ? persistent_blocks<N::FEATURES>(segments, blocks_for_needs<N>()) : blocks_of<N::FEATURES>(segments);
    renderBackwardSegments_kernel<N><<<blocks, 32 * WARPS, 0, queue.stream>>>(p, out, d, segments, next);
}

template <bool MOVING>
auto* camera_kernel(GradSums const& d) {
    return d.origins      ? launch<CameraNeeds<MOVING, true, true>>
           : d.d_distance ? launch<CameraNeeds<MOVING, true, false>>
                          : launch<CameraNeeds<MOVING, false, false>>;
}

}  // namespace

void accumulate_segments(RenderParams const& p, RenderOutputs const& out, RenderGrads const& given,
                         Segments const& segments, MomentRow* moments, Queue const& queue) {
    GradSums const d = {given, nullptr, moments};
    bool const lidar = p.n_features == 2;
    auto* const kernel = lidar && d.origins ? launch<LidarNeeds<true>>
                         : lidar            ? launch<LidarNeeds<false>>
                         : p.moving         ? camera_kernel<true>(d)
                                            : camera_kernel<false>(d);
    kernel(p, out, d, segments, queue);
}

}  // namespace nurec::cuda
