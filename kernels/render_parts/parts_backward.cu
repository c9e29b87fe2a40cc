// SPDX-License-Identifier: Apache-2.0
// The backward pass of parts, 16 Gaussians of each at a time and in two phases. First a lane is a ray: front to back,
// it finds the weight of each Gaussian and the gradient of its opacity, and leaves the two. Then a lane is a Gaussian,
// or of an image two are one, each for half of the rays: what rays tell of it adds up in registers (math/moments.cuh),
// where a sum over the lanes of a warp for every Gaussian and number took as long as all else.
#include "../render/backward.cuh"
#include "../render/split_backward.cuh"
#include "parts.cuh"

namespace nurec::cuda {
namespace {

// Blocks that fit on a multiprocessor: no instance spills from the registers that this leaves.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int BLOCKS = 6, BLOCKS_MOVING = 5;
#else
constexpr int BLOCKS = 8, BLOCKS_MOVING = 6;
#endif

constexpr int AHEAD = 4;
constexpr int SUMS = sizeof(MomentRow) / sizeof(float);
static_assert(SUMS == 16 && SUMS == MOMENT_FLOATS);

constexpr int MEMBERS =
    16;  // Gaussians that a group takes at a time; and a warp, and in the second phase lanes of each
template <class N>
constexpr int ROWS = MEMBERS * GROUPS<N::FEATURES>;
template <class N>
constexpr int SHARES = 32 / ROWS<N>;

struct Pair {            // zeros where the ray does not meet the Gaussian
    float weight, peak;  // dL/d(peak) peak
};

template <class N>
using RowFor = PartRow<N::MOVING, N::FEATURES>;

template <class N>
struct alignas(16) Told {  // what a ray tells all Gaussians
    Vec3<float> d;
    float dt;
    float features[N::FEATURES], distance;  // dL/d(output)
    Target<float> target[N::FEATURES == 2];
};

// Read each time: in registers it would be two more than there are.
template <class N>
__device__ Target<float> target_of(Told<N> const& ray) {
    if (N::FEATURES != 2) return NO_TARGET;
    Target<float> const volatile& kept = ray.target[0];
    return {kept.distance, kept.most};
}

template <class N>
struct Batch {
    static constexpr int P = LANES<N::FEATURES>;
    RowFor<N> rows[GROUPS<N::FEATURES>][MEMBERS + (P < 32)];  // one more: else groups would read from the same banks
    Told<N> rays[32];
    union {
        Pair pairs[ROWS<N>][P + 1];  // likewise lanes
        float sums[ROWS<N>][SUMS];
    };
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

template <class N>
__device__ void tell(OneRay<N> const& one, Told<N>& to) {
    to.d = one.ray.d, to.dt = one.ray.dt, to.distance = N::DISTANCE ? one.distance : 0.f;
    if (N::FEATURES == 2) to.target[0] = one.target;
#pragma unroll
    for (int c = 0; c < N::FEATURES; ++c) to.features[c] = one.features[c];
}

// `d_peak` as Pair has it.
template <class N>
__device__ void add_to_ray(RowFor<N> const& g, Passing<float> const& at, float d_peak, float d_t, OneRay<N>& one) {
    PassGrad<float> const a =
        pass_turned_backward<N::MOVING, N::DISTANCE>(at.g, at.e, at.inverse, g.frame.unit, d_peak, d_t);
    float const scale = 1 / g.frame.unit;
    one.d_direction = one.d_direction + transposed_times(g.frame.M, (scale * at.t) * a.w + a.n);
    one.d_origin = one.d_origin + scale * transposed_times(g.frame.M, a.w);
}

// A ray meets a Gaussian. `one.T` is what passes since `start`.
template <class N>
__device__ Pair meet(RowFor<N> const& g, Passing<float> const& at, Target<float> target, OneRay<N>& one, float start) {
    bool const seen = one.open & reaches(at.alpha, at.t);
    float const before = start * one.T, q = one.T * (1 - at.alpha);
    bool const kept = seen & (start * q >= T_MIN);
    one.open = one.open & (kept | !seen);
    if (!kept) return {0, 0};
    one.T = q;
    float const w = at.alpha * before;
    float slope = distance_slope<N>(one.distance, target, at.t);
#pragma unroll
    for (int c = 0; c < N::FEATURES; ++c) slope += g.features[c] * one.features[c];
    float const d_alpha = blend_backward(at.alpha, w, before, slope, one.behind);
    float const d_peak = at.peak <= ALPHA_MAX ? d_alpha * at.peak : 0.f;
    if (N::RAYS) add_to_ray<N>(g, at, d_peak, distance_backward<N>(one.distance, target, at.t, w), one);
    return {w, d_peak};
}

// The first phase of a batch, of which the group has n Gaussians; whether any ray of the warp meets any. AHEAD
// responses are found together, which do not wait for one another; where another group has more, of rows that nobody
// wrote, too.
template <class N>
__device__ bool meet_batch(Batch<N>& batch, int n, OneRay<N>& one, float start) {
    constexpr int C = N::FEATURES, P = LANES<C>;
    int const group = group_of_warp<C>(), most = most_of_groups<P>(n);
    auto const& rows = batch.rows[group];
    bool met = false;
    auto const respond = [&](int k) { return pass(rows[k].frame, one.ray.d, one.ray.dt); };
    auto const keep = [&](int k, Passing<float> const& at) {
        if (P < 32 && k >= n) return;
        Pair const pair = meet<N>(rows[k], at, target_of(batch.rays[threadIdx.x % 32]), one, start);
        batch.pairs[MEMBERS * group + k][lane_of_group<C>()] = pair, met |= pair.weight != 0;
    };
    int k = 0;
    for (; k + AHEAD <= most; k += AHEAD) {
        Passing<float> at[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) at[a] = respond(k + a);
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) keep(k + a, at[a]);
    }
    for (; k < most; ++k) keep(k, respond(k));
    __syncwarp();
    return __any_sync(ALL_LANES, met);
}

// What one ray tells of one Gaussian, from what is left of the pair.
template <class N>
__device__ void add_pair(RowFor<N> const& g, Told<N> const& ray, Pair const& pair, MomentRow& sum) {
    Vec3<float> const e = g.frame.M * ray.d;
    Vec2<float> const at = drifted(g.frame, ray.dt);
    float const inverse = 1 / larger(dot(e, e), 1e-30f);  // of a pair that is none, too
    float const t = -(at.x * e.x + at.y * e.y) * inverse * g.frame.unit;
    float const d_t = distance_backward<N>(ray.distance, target_of(ray), t, pair.weight);
    PassGrad<float> const a =
        pass_turned_backward<N::MOVING, N::DISTANCE>(at, e, inverse, g.frame.unit, pair.peak, d_t);
    add_moments<N::MOVING, N::DISTANCE>(a, e, ray.dt, sum.moments);
#pragma unroll
    for (int k = 0; k < N::FEATURES; ++k) sum.features[k] += pair.weight * ray.features[k];
}

// Where a sum of a row lies: so that neither lanes that write the same sum of their rows nor those that read all sums
// of two share a bank.
template <class N>
__device__ int place_of_sum(int row, int sum) {
    return sum ^ (SHARES<N> == 2 ? row : row / 2);
}

// From the lanes of each Gaussian: of two, one keeps the first half of the sums, one the other. Then consecutive lanes
// add consecutive numbers.
template <class N>
__device__ void add_rows(MomentRow const& mine, int member, Batch<N>& batch, MomentRow* moments) {
    constexpr int KEPT = SUMS / SHARES<N>, P = Batch<N>::P;
    int const lane = int(threadIdx.x % 32), own = lane % ROWS<N>, share = lane / ROWS<N>;
    auto const* all = reinterpret_cast<float const*>(&mine);
    float kept[KEPT];
#pragma unroll
    for (int j = 0; j < KEPT; ++j) {
        float const low = all[j], high = all[j + SUMS - KEPT];
        kept[j] = SHARES<N> == 1 ? low : (share ? high : low) + __shfl_xor_sync(ALL_LANES, share ? low : high, 16);
    }
    __syncwarp();  // pairs have been read
#pragma unroll
    for (int j = 0; j < KEPT; ++j) batch.sums[own][place_of_sum<N>(own, j + share * KEPT)] = kept[j];
    __syncwarp();
#pragma unroll 8
    for (int q = 0; q < ROWS<N> / 2; ++q) {
        int const row = 2 * q + lane / SUMS, k = lane % SUMS;
        int const whose =
            __shfl_sync(ALL_LANES, member, GROUPS<N::FEATURES> == 1 ? row : P * (row / MEMBERS) + row % MEMBERS);
        float const sum = batch.sums[row][place_of_sum<N>(row, k)];
        if (sum != 0) atomicAdd(reinterpret_cast<float*>(moments + whose) + k, sum);
    }
}

// The second phase of a batch: a lane is a Gaussian, of an image lanes k and k + 16. Of a lidar's pairs so few are met
// that to look first is faster.
template <class N>
__device__ void add_batch(Batch<N>& batch, int n, int member, MomentRow* moments) {
    constexpr bool SPARSE = N::FEATURES == 2;
    constexpr int P = Batch<N>::P;
    int const row = int(threadIdx.x % ROWS<N>), group = row / MEMBERS, k = row % MEMBERS;
    int const share = int(threadIdx.x % 32) / ROWS<N>;
    MomentRow sum = {};
    if (k < __shfl_sync(ALL_LANES, n, P * group)) {
        RowFor<N> const g = batch.rows[group][k];
#pragma unroll(SPARSE ? 1 : 2)
        for (int j = share; j < P; j += SHARES<N>) {
            Pair const pair = batch.pairs[row][j];
            if (!SPARSE || pair.weight != 0) add_pair<N>(g, batch.rays[P * group + j], pair, sum);
        }
    }
    add_rows(sum, member, batch, moments);
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
__global__ void __launch_bounds__(32 * WARPS, blocks_for_needs<N>())
    partBackward(RenderParams p, RenderOutputs out, Summed d, Parts parts) {
    __shared__ Batch<N> batches[WARPS];
    constexpr int C = N::FEATURES;
    Work const w = my_work<C>(p, parts);
    if (!__any_sync(ALL_LANES, w.parts)) return;
    int const lane = lane_of_group<C>();
    Batch<N>& batch = batches[threadIdx.x / 32];
    int64_t const i = ray_of<C>(p, w);
    OneRay<N> one = load_one<N>(p, out, d, i);
    float const start = start_part<N>(parts, w, one);
    if (!__any_sync(ALL_LANES, one.open)) return;
    tell(one, batch.rays[threadIdx.x % 32]);
    auto const* rows = reinterpret_cast<RowFor<N> const*>(parts.rows);
    int64_t const* list = w.list;
    for (int left = w.n; GROUPS<C> > 1 || left > 0; left -= MEMBERS, list += MEMBERS) {
        int const n = left < MEMBERS ? left : MEMBERS, member = lane < n ? int(list[lane]) : 0;
        stage_rows<C, MEMBERS>(rows, member, n, batch.rows[group_of_warp<C>()]);
        if (meet_batch<N>(batch, n, one, start)) add_batch<N>(batch, n, member, d.moments);
        if (!__any_sync(ALL_LANES, (GROUPS<C> == 1 || left > MEMBERS) && one.open)) break;
        __syncwarp();
    }
    if (N::RAYS && i >= 0) add3(d.directions, i, one.d_direction), add3(d.origins, i, one.d_origin);
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
__global__ void finish_parts_kernel(RenderParams p, Summed d) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.g.n) return;
    if (p.visible && !p.visible[i]) return store_gradient<C>(p, d, i, {}, 0, nullptr);
    MomentRow const& sum = d.moments[i];
    Frame<float> const f = frame_of(p.g, i);
    Moments<float> const found = turned_back(turn_of(frame_on<MOVING>(p.path, f)), p.g.opacities[i], sum.moments);
    GaussianGrad<float> const g = moments_backward(quat_of(p.g, i), load3(p.g.scales, i), f, found);
    store_gradient<C>(p, d, i, g, found.opacity, sum.features);
}

template <class N>
void launch(RenderParams const& p, RenderOutputs const& out, Summed const& d, Parts const& parts, cudaStream_t stream) {
    if (parts.most) partBackward<N><<<blocks_of<N::FEATURES>(parts), 32 * WARPS, 0, stream>>>(p, out, d, parts);
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
    kernel(p, out, d, parts, queue.stream);
}

void render_parts_backward(RenderParams const& p, RenderOutputs const& out, RenderGrads const& given,
                           Parts const& parts, Queue const& queue) {
    if (!p.g.n) return;
    Summed const d = {given, nullptr, zeros<MomentRow>(p.g.n, queue)};
    add_up_parts(p, out, given, parts, d.moments, queue);
    auto* const finish = p.n_features == 2 ? finish_parts_kernel<true, 2>
                         : p.moving        ? finish_parts_kernel<true, 3>
                                           : finish_parts_kernel<false, 3>;
    finish<<<blocks_for(p.g.n), THREADS, 0, queue.stream>>>(p, d);
}

}  // namespace nurec::cuda
