// SPDX-License-Identifier: Apache-2.0
// The backward epilogue. A thread takes a Gaussian and loops over the views that saw it. Each number is written once,
// however many views there are. A view without sight of the Gaussian costs one byte.
// A step of a long drive sees few Gaussians. Blocks out of view, if they are known, write nothing. If they are not, a
// first kernel, with few registers, finds the idle blocks and writes their zeros.
#include "../../common/flat.cuh"
#include "../../common/gaussians.cuh"
#include "../../common/triples.cuh"
#include "../../common/visible.cuh"
#include "../../common/warp.cuh"
#include "../../math/activate.cuh"
#include "../../math/aligned_frame.cuh"
#include "../../project/moment_row.cuh"
#include "gaussian_backward.h"

namespace nurec::cuda {
namespace {

constexpr int WARPS = THREADS / 32;
constexpr int BLOCKS_PER_SM = 3;  // that fit on a multiprocessor without spilling on any architecture

struct ViewGrad {  // of one view
    GaussianGrad<float> g;
    float opacity, features[2];  // features of a lidar
};

// Sums over the views, in shared memory: in registers they would not fit. Their number is odd, which avoids bank
// conflicts.
struct Sums {
    Vec3<float> mean, s;
    float lidar[2], lidar_opacity, opacity;
    Quat<float> q;
    float none;
};
constexpr int NUMBERS = sizeof(Sums) / sizeof(float), MEAN = 0, SCALES = 3, LIDAR = 6;  // and where these begin
static_assert(NUMBERS % 2 == 1);

__device__ void add(Quat<float> const& one, Quat<float>& sum) {
    sum.w += one.w, sum.x += one.x, sum.y += one.y, sum.z += one.z;
}

struct Seen {  // a Gaussian, from the centre of a view
    Vec3<float> mean, s, v;
    Quat<float> q;
};

__device__ int64_t place_of(BackwardScene const& scene, int view, int64_t i) {
    return view * (scene.n - scene.still) + i - scene.still;
}

__device__ Seen seen_by(BackwardScene const& scene, BackwardViews const& views, int view, int64_t i) {
    Vec3<float> const centre = views.view[view].row->centre, s = load3(scene.scales, i);
    if (i < scene.still) return {load3(scene.means, i) - centre, s, {0, 0, 0}, load_quat(scene.quats, i)};
    int64_t const place = place_of(scene, view, i);
    return {load3(scene.moved_means, place) - centre, s, load3(scene.velocities, place),
            load_quat(scene.moved_quats, place)};
}

__device__ ViewGrad view_grad_of(BackwardScene const& scene, BackwardViews const& views, int v, int64_t i,
                                 Seen const& g) {
    BackwardView const& view = views.view[v];
    MomentRow const& sum = view.moments[i];
    Frame<float> const f = make_frame(g.mean, g.q, g.s, g.v);
    Alignment<float> const turn = alignment_of(view.moving ? relative_to_sensor(view.row->path, f) : f);
    Moments<float> const m = unalign(turn, (view.by_lidar ? scene.lidar_opacities : scene.opacities)[i], sum.moments);
    return {moments_backward(g.q, g.s, f, m), m.opacity, {sum.features[0], sum.features[1]}};
}

// `own`: the lidar has opacities of its own.
__device__ void add(ViewGrad const& one, bool by_lidar, bool own, Sums& sum) {
    sum.mean = sum.mean + one.g.mean, sum.s = sum.s + one.g.s;
    add(one.g.q, sum.q);
    if (by_lidar && own)
        sum.lidar_opacity += one.opacity;
    else
        sum.opacity += one.opacity;
    if (by_lidar) sum.lidar[0] += one.features[0], sum.lidar[1] += one.features[1];
}

// Sums the six numbers of a view's pose gradient over a block, to `row`.
__device__ void add_up(Correction<float> const& c, float (&of_warps)[POSE_DELTA_FLOATS][WARPS], float* row) {
    float values[POSE_DELTA_FLOATS] = {c.turn.x, c.turn.y, c.turn.z, c.shift.x, c.shift.y, c.shift.z};
    float const sum = sums_of_block(values, of_warps);
    if (threadIdx.x < POSE_DELTA_FLOATS) row[threadIdx.x] = sum;
}

__device__ Vec3<float> or_zeros3(float const* a, int64_t i) {
    return a ? load3(a, i) : Vec3<float>{0, 0, 0};
}

__device__ Quat<float> or_zeros4(float const* a, int64_t i) {
    return a ? load_quat(a, i) : Quat<float>{0, 0, 0, 0};
}

__device__ float number_of(UpstreamValues const& given, int64_t i) {
    return given.at ? given.at[given.one ? 0 : i] : 0.f;
}

// Stores the gradients of dynamic Gaussian `a` of the view; returns whether its mean has one.
__device__ bool store_moved(UpstreamMoved const& given, EpilogueGrads const& out, int64_t place, int64_t a,
                            GaussianGrad<float> g) {
    Vec3<float> const mean = g.mean + or_zeros3(given.means, a);
    add(or_zeros4(given.quats, a), g.q);
    store3(out.moved_means, place, mean);
    store_quat(out.moved_quats, place, g.q);
    store3(out.velocities, place, g.v + or_zeros3(given.velocities, a));
    return is_some(mean);
}

// Copies the rotations' gradients of all views into one array, as the interpolation's backward pass takes them.
__device__ void store_rotations(UpstreamGrads const& given, int64_t views, int64_t nodes, float* to) {
    for (int64_t v = 0; v < views; ++v)
        for (int64_t k = first_row() + threadIdx.x; k < nodes; k += gridDim.x * int64_t(THREADS))
            store_quat(to, v * nodes + k, or_zeros4(given.view[v].rotations, k));
}

// Adds upstream gradients of everything but the dynamic placements; `moved`: one of these has a gradient.
__device__ void add_upstream(BackwardScene const& scene, UpstreamGrads const& given, int64_t i, bool moved, Sums& sum) {
    if (i < scene.still) {
        sum.mean = sum.mean + or_zeros3(given.still_means, i);
        add(or_zeros4(given.still_quats, i), sum.q);
    }
    if (given.seen_only && !moved && !is_some(sum.mean)) {
        sum.s = {0, 0, 0}, sum.opacity = sum.lidar_opacity = sum.lidar[0] = sum.lidar[1] = 0;
        return;
    }
    sum.s.x += number_of(given.scales, 3 * i), sum.s.y += number_of(given.scales, 3 * i + 1);
    sum.s.z += number_of(given.scales, 3 * i + 2);
    sum.opacity += number_of(given.opacities, i), sum.lidar_opacity += number_of(given.lidar_opacities, i);
    sum.lidar[0] += number_of(given.lidar, 2 * i), sum.lidar[1] += number_of(given.lidar, 2 * i + 1);
}

// Continues to the stored parameters. `own` as above.
__device__ void to_stored(BackwardScene const& scene, int64_t i, bool own, Sums& sum) {
    Vec3<float> const s = load3(scene.scales, i);
    sum.q = normalized_backward(load_quat(scene.stored_quats, i), sum.q);
    sum.s = {s.x * sum.s.x, s.y * sum.s.y, s.z * sum.s.z};
    sum.opacity = sigmoid_backward(scene.opacities[i], sum.opacity);
    if (own) sum.lidar_opacity = sigmoid_backward(scene.lidar_opacities[i], sum.lidar_opacity);
    Vec2<float> const lidar = load2(scene.lidar, i);
    sum.lidar[0] = sigmoid_backward(lidar.x, sum.lidar[0]), sum.lidar[1] = sigmoid_backward(lidar.y, sum.lidar[1]);
}

// Stores rows of ROW of the sums in the order of memory. All threads of a block call it.
template <int ROW>
__device__ void store_rows(float* to, int64_t begin, int64_t n, Sums const* sums, int first) {
    if (!to) return;
    float flat[ROW];
    auto const* numbers = reinterpret_cast<float const*>(sums);
#pragma unroll
    for (int k = 0; k < ROW; ++k)
        flat[k] = numbers[NUMBERS * (number_in_block(k) / ROW) + first + number_in_block(k) % ROW];
    store_flat(to, begin, n, flat);
}

template <int C>
__device__ void store_sums(EpilogueGrads const& out, int64_t begin, int64_t n, Sums const* sums) {
    store_rows<3>(out.means, begin, n, sums, MEAN);
    store_rows<3>(out.scales, begin, n, sums, SCALES);
    store_rows<C == 3 ? 3 : 2>(out.lidar, begin, n, sums, LIDAR);
    int64_t const i = begin + threadIdx.x;
    if (i >= n) return;
    Sums const& mine = sums[threadIdx.x];
    if (out.quats) store4(out.quats, i, mine.q);
    if (out.opacities) out.opacities[i] = mine.opacity;
    if (out.lidar_opacities) out.lidar_opacities[i] = mine.lidar_opacity;
}

// Whether a block's Gaussians stand still and get no gradient. All threads of a block call it.
__device__ bool is_idle(BackwardScene const& scene, BackwardViews const& views, UpstreamGrads const& given, int64_t i) {
    if (given.still_quats || first_row() + THREADS > scene.still) return false;
    bool some = is_some(or_zeros3(given.still_means, i));
    for (int v = 0; v < views.n; ++v) some = some || (views.view[v].moments && views.view[v].seen[i]);
    return !__syncthreads_or(some);
}

// Stores the gradients of an idle block's Gaussians.
template <int C>
__device__ void store_none(EpilogueGrads const& out, int64_t n) {
    int64_t const first = first_row(), i = first + threadIdx.x;
    float const three[3] = {}, of_lidar[C == 3 ? 3 : 2] = {};
    if (out.means) store_flat(out.means, first, n, three);
    if (out.scales) store_flat(out.scales, first, n, three);
    if (out.lidar) store_flat(out.lidar, first, n, of_lidar);
    if (out.quats) store4(out.quats, i, {0, 0, 0, 0});
    if (out.opacities) out.opacities[i] = 0;
    if (out.lidar_opacities) out.lidar_opacities[i] = 0;
}

// Finds idle blocks, and stores the gradients of their Gaussians.
template <int C>
__global__ void __launch_bounds__(THREADS)
    clear_idle_blocks_kernel(BackwardScene scene, BackwardViews views, UpstreamGrads given, EpilogueGrads out,
                             uint8_t* busy) {
    bool const idle = is_idle(scene, views, given, first_row() + threadIdx.x);
    if (threadIdx.x == 0) busy[blockIdx.x] = !idle;
    if (idle) store_none<C>(out, scene.n);
}

// Pose gradients of a block of Gaussians: a row of each view, `stride` numbers apart.
struct PoseRows {
    float* rows;
    int64_t stride;

    __device__ float* of(int view) const { return rows + stride * view; }
};

// Stores the pose gradients of an idle block.
__device__ void clear(PoseRows const& pose, BackwardViews const& views) {
    for (int v = 0; v < views.n; ++v)
        if (views.view[v].wants_pose_grad && threadIdx.x < POSE_DELTA_FLOATS) pose.of(v)[threadIdx.x] = 0;
}

template <bool POSE_GRAD>
struct Shared {
    Sums sums[THREADS];
    float of_warps[POSE_DELTA_FLOATS][POSE_GRAD ? WARPS : 1];
};

// Differentiates the Gaussians from `first` on. All threads of a block call it.
template <int C, bool POSE_GRAD>
__device__ void differentiate_block(BackwardScene const& scene, BackwardViews const& views, UpstreamGrads const& given,
                                    EpilogueGrads const& out, PoseRows const& pose, int64_t first,
                                    Shared<POSE_GRAD>& s) {
    int64_t const i = first + threadIdx.x;
    bool const there = i < scene.n, own = scene.lidar_opacities != scene.opacities;
    bool moved = false;
    Sums& sum = s.sums[threadIdx.x];
    sum = {};
#pragma unroll 1  // else registers spill
    for (int v = 0; v < views.n; ++v) {
        BackwardView const& view = views.view[v];
        bool const seen = there && view.moments && view.seen[i];
        ViewGrad one = {};
        Correction<float> c = {};
        if (seen) {
            Seen const g = seen_by(scene, views, v, i);
            one = view_grad_of(scene, views, v, i, g);
            if (POSE_GRAD && view.wants_pose_grad) c = pose_vjp(g.mean, g.q, one.g.mean, one.g.q);
        }
        if constexpr (POSE_GRAD)
            if (view.wants_pose_grad) add_up(c, s.of_warps, pose.of(v));
        if (there && i >= scene.still)
            moved |= store_moved(given.view[v], out, place_of(scene, v, i), i - scene.still, one.g);
        if (seen) add(one, view.by_lidar, own, sum);
    }
    if (there) add_upstream(scene, given, i, moved, sum);
    if (C && there) to_stored(scene, i, own, sum);
    __syncthreads();
    store_sums<C>(out, first, scene.n, s.sums);
    __syncthreads();
}

// C: columns of lidar logits; 0: gradients are those of activations. `rows` [V, blocks, 6]: pose gradients of the
// visible blocks; null: none are asked for. `busy` [blocks]: blocks with something to do; null: all have.
template <int C, bool POSE_GRAD>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    differentiate_gaussians_kernel(BackwardScene scene, BackwardViews views, UpstreamGrads given, EpilogueGrads out,
                                   float* rows, uint8_t const* busy) {
    __shared__ Shared<POSE_GRAD> s;
    store_rotations(given, views.n, scene.nodes, out.rotations);
    int64_t const count = given.blocks.count(scene.n), stride = POSE_DELTA_FLOATS * blocks_of_store(scene.n);
    for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
        PoseRows const pose = {POSE_GRAD ? rows + POSE_DELTA_FLOATS * k : nullptr, stride};
        if (!busy || busy[k])
            differentiate_block<C, POSE_GRAD>(scene, views, given, out, pose, given.blocks.first(k), s);
        else if constexpr (POSE_GRAD)
            clear(pose, views);
    }
}

// A block sums the pose gradient of a view, always in the same order.
__global__ void __launch_bounds__(THREADS)
    sum_pose_grads_kernel(BackwardViews views, float const* rows, VisibleBlocks blocks, int64_t n, float* pose_grads) {
    __shared__ float of_warps[POSE_DELTA_FLOATS][WARPS];
    Correction<float> sum = {};
    float const* const mine = rows + POSE_DELTA_FLOATS * blocks_of_store(n) * blockIdx.x;
    int const count = views.view[blockIdx.x].wants_pose_grad ? int(blocks.count(n)) : 0;
    for (int row = int(threadIdx.x); row < count; row += THREADS)
        sum.turn = sum.turn + load3(mine, 2 * row), sum.shift = sum.shift + load3(mine, 2 * row + 1);
    add_up(sum, of_warps, pose_grads + POSE_DELTA_FLOATS * blockIdx.x);
}

template <int C>
void launch(BackwardScene const& scene, BackwardViews const& views, UpstreamGrads const& given,
            EpilogueGrads const& out, Queue const& queue) {
    unsigned const all = unsigned(blocks_of_store(scene.n));
    float* const rows = out.pose_grads ? queue.memory.array<float>(POSE_DELTA_FLOATS * views.n * all) : nullptr;
    uint8_t* busy = nullptr;
    if (given.seen_only && !given.blocks.listed && all) {
        busy = queue.memory.array<uint8_t>(all);
        clear_idle_blocks_kernel<C><<<all, THREADS, 0, queue.stream>>>(scene, views, given, out, busy);
    }
    // rotations are there without Gaussians, too
    unsigned const blocks = larger(blocks_for(given.blocks, scene.n), 1u);
    auto* const kernel = rows ? differentiate_gaussians_kernel<C, true> : differentiate_gaussians_kernel<C, false>;
    kernel<<<blocks, THREADS, 0, queue.stream>>>(scene, views, given, out, rows, busy);
    if (rows)
        sum_pose_grads_kernel<<<unsigned(views.n), THREADS, 0, queue.stream>>>(views, rows, given.blocks, scene.n,
                                                                               out.pose_grads);
}

}  // namespace

void gaussian_backward(BackwardScene const& scene, BackwardViews const& views, UpstreamGrads const& given,
                       EpilogueGrads const& out, Queue const& queue) {
    auto* const by_columns = out.columns == 0 ? launch<0> : out.columns == 2 ? launch<2> : launch<3>;
    by_columns(scene, views, given, out, queue);
}

}  // namespace nurec::cuda
