// SPDX-License-Identifier: Apache-2.0
// The backward pass of parts, some Gaussians of each at a time and in two phases. First a lane is a ray: front to back,
// it finds the weight of each Gaussian and the gradient of its opacity, and leaves what the second phase needs. Then
// lanes are Gaussians, several of them one or each one: what rays tell of it adds up in registers (math/moments.cuh),
// where a sum over the lanes of a warp for every Gaussian and number took as long as all else.
#include "../render/backward.cuh"
#include "pairs.cuh"

namespace nurec::cuda {
namespace {

// Blocks that fit on a multiprocessor: no instance spills from the registers that this leaves.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int BLOCKS = 6, BLOCKS_MOVING = 5;
#else
constexpr int BLOCKS = 8, BLOCKS_MOVING = 6;
#endif

constexpr int AHEAD = 4;

template <class N>
struct Batch {
    BatchRows<N> rows;
    Left<N> left;
};

// What passes through the parts before, whose weights lie no longer behind.
template <class N>
__device__ float start_part(Parts const& parts, Work const& w, OneRay<N>& one) {
    constexpr int C = N::FEATURES;
    float const start = passed<C>(parts, w);
    for (int64_t j = w.first; j < w.part; ++j) {
        if (N::DISTANCE) one.behind -= left_of<C>(parts, j, DISTANCE) * one.distance;
#pragma unroll
        for (int c = 0; c < C; ++c) one.behind -= left_of<C>(parts, j, FEATURES + c) * one.features[c];
    }
    one.open = one.open && start >= T_MIN;
    return start;
}

// `d_peak` as Gain has it.
template <class N>
__device__ void add_to_ray(RowFor<N> const& g, AlignedResponse<float> const& at, float d_peak, float d_t,
                           OneRay<N>& one) {
    RayMoments<float> const a =
        aligned_ray_moments<N::MOVING, N::DISTANCE>(at.g, at.e, at.inverse, g.frame.unit, d_peak, d_t);
    float const scale = 1 / g.frame.unit;
    one.d_direction = one.d_direction + transposed_times(g.frame.M, (scale * at.t) * a.w + a.n);
    one.d_origin = one.d_origin + scale * transposed_times(g.frame.M, a.w);
}

// Whether a ray meets a Gaussian and is blended with it. `one.T` is what passes since `start`.
template <class N>
__device__ bool meet(RowFor<N> const& g, AlignedResponse<float> const& at, RangeTarget<float> target, OneRay<N>& one,
                     float start, Gain& gain) {
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

// The first phase of a batch, of which the group has n Gaussians; whether any ray of the warp meets any. AHEAD
// responses are found together, which do not wait for one another; where another group has more, of rows that nobody
// wrote, too.
template <class N>
__device__ bool meet_batch(Batch<N>& batch, int n, OneRay<N>& one, float start) {
    constexpr int P = LANES<N::FEATURES>;
    int const most = most_of_groups<P>(n);
    auto const& rows = batch.rows[group_of_warp<N::FEATURES>()].of;
    bool any = false;
    auto const respond = [&](int k) { return evaluate(rows[k].frame, one.ray.d, one.ray.dt); };
    auto const keep = [&](int k, AlignedResponse<float> const& at) {
        if (P < 32 && k >= n) return;
        Gain gain = {};
        bool const met = meet<N>(rows[k], at, batch.left.target(), one, start, gain);
        batch.left.leave(k, met, at, gain), any |= met;
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

// Parts of one list add to the same rays.
__device__ void add3(float* to, int64_t i, Vec3<float> a) {
    atomicAdd(to + 3 * i, a.x), atomicAdd(to + 3 * i + 1, a.y), atomicAdd(to + 3 * i + 2, a.z);
}

template <class N>
constexpr int blocks_for_needs() {
    if (N::RAYS || (N::FEATURES == 3 && N::DISTANCE)) return 4;  // which training does not ask for
    return N::MOVING ? BLOCKS_MOVING : BLOCKS;
}

template <class N>
constexpr bool QUEUED = !N::DISTANCE;

template <class N>
__device__ void differentiate_part(RenderParams const& p, RenderOutputs const& out, Summed const& d, Parts const& parts,
                                   Work const& w, Batch<N>& batch) {
    constexpr int C = N::FEATURES, M = MEMBERS<N>;
    int const lane = lane_of_group<C>();
    int64_t const i = ray_of<C>(p, w);
    OneRay<N> one = load_one<N>(p, out, d, i);
    float const start = start_part<N>(parts, w, one);
    if (!__any_sync(ALL_LANES, one.open)) return;
    batch.left.tell(one);
    auto const* rows = reinterpret_cast<RowFor<N> const*>(parts.rows);
    int const* list = w.list;
    for (int left = w.n; GROUPS<C> > 1 || left > 0; left -= M, list += M) {
        int const n = left < M ? left : M, member = lane < n ? list[lane] : 0;
        stage_rows<C, M>(rows, member, n, batch.rows[group_of_warp<C>()].of);
        if (meet_batch<N>(batch, n, one, start)) batch.left.add(batch.rows, n, member, d.moments);
        if (!__any_sync(ALL_LANES, (GROUPS<C> == 1 || left > M) && one.open)) break;
        __syncwarp();
    }
    if (N::RAYS && i >= 0) add3(d.directions, i, one.d_direction), add3(d.origins, i, one.d_origin);
}

// Of images, warps go on to parts that nobody has taken: so none waits for the longest of its block.
template <class N>
__global__ void __launch_bounds__(32 * WARPS, blocks_for_needs<N>())
    renderBackwardSegments_kernel(RenderParams p, RenderOutputs out, Summed d, Parts parts, unsigned* next) {
    __shared__ Batch<N> batches[WARPS];
    Batch<N>& batch = batches[threadIdx.x / 32];
    if constexpr (QUEUED<N>) {
        take_parts(p, parts, next,
                   [&](int64_t part) { differentiate_part<N>(p, out, d, parts, work_at(p, parts, part), batch); });
    } else {
        Work const w = work_at(p, parts, own_part<N::FEATURES>());
        if (__any_sync(ALL_LANES, w.parts)) differentiate_part<N>(p, out, d, parts, w, batch);
    }
}

template <int C>
__device__ void store_gradient(RenderParams const& p, Summed const& d, int64_t i, GaussianGrad<float> const& g,
                               float opacity, float const* features) {
    store_placed(d.g, p.g.n_still, i, g.mean, g.q, g.v);
    store3(d.g.scales, i, g.s);
    d.g.opacities[i] = opacity;
#pragma unroll
    for (int c = 0; c < C; ++c) d.features[C * i + c] = features ? features[c] : 0.f;
}

// From moments to the gradients of the Gaussians' parameters; of what is in no list nothing is read.
template <bool MOVING, int C>
__global__ void differentiate_aligned_moments_kernel(RenderParams p, Summed d) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.g.n) return;
    if (p.visible && !p.visible[i]) return store_gradient<C>(p, d, i, {}, 0, nullptr);
    MomentRow const& sum = d.moments[i];
    Frame<float> const f = frame_of(p.g, i);
    Moments<float> const found = unalign(alignment_of(frame_on<MOVING>(p.path, f)), p.g.opacities[i], sum.moments);
    GaussianGrad<float> const g = moments_backward(quat_of(p.g, i), load3(p.g.scales, i), f, found);
    store_gradient<C>(p, d, i, g, found.opacity, sum.features);
}

template <class N>
void launch(RenderParams const& p, RenderOutputs const& out, Summed const& d, Parts const& parts, Queue const& queue) {
    if (!parts.most) return;
    unsigned* const next = QUEUED<N> ? zeros<unsigned>(1, queue) : nullptr;
    unsigned const blocks =
        QUEUED<N> ? blocks_that_take<N::FEATURES>(parts, blocks_for_needs<N>()) : blocks_of<N::FEATURES>(parts);
    renderBackwardSegments_kernel<N><<<blocks, 32 * WARPS, 0, queue.stream>>>(p, out, d, parts, next);
}

template <bool MOVING>
auto* camera_kernel(Summed const& d) {
    return d.origins      ? launch<CameraNeeds<MOVING, true, true>>
           : d.d_distance ? launch<CameraNeeds<MOVING, true, false>>
                          : launch<CameraNeeds<MOVING, false, false>>;
}

}  // namespace

void add_up_parts(RenderParams const& p, RenderOutputs const& out, RenderGrads const& given, Parts const& parts,
                  MomentRow* moments, Queue const& queue) {
    Summed const d = {given, nullptr, moments};
    bool const lidar = p.n_features == 2;
    auto* const kernel = lidar && d.origins ? launch<LidarNeeds<true>>
                         : lidar            ? launch<LidarNeeds<false>>
                         : p.moving         ? camera_kernel<true>(d)
                                            : camera_kernel<false>(d);
    kernel(p, out, d, parts, queue);
}

void render_parts_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& given,
                           Parts const& parts, Queue const& queue) {
    if (!p.g.n) return;
    Summed const d = {given, nullptr, zeros<MomentRow>(p.g.n, queue)};
    add_up_parts(p, out, given, parts, d.moments, queue);
    auto* const finish = p.n_features == 2 ? differentiate_aligned_moments_kernel<true, 2>
                         : p.moving        ? differentiate_aligned_moments_kernel<true, 3>
                                           : differentiate_aligned_moments_kernel<false, 3>;
    finish<<<blocks_for(p.g.n), THREADS, 0, queue.stream>>>(p, d);
}

}  // namespace nurec::cuda
