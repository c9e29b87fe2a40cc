// SPDX-License-Identifier: Apache-2.0
// The forward pass of segmented blending, one lane a ray.
//
// Segments wait for one another: a segment spins until the transmittance of every earlier segment of its list is
// stored. This cannot deadlock. Work is handed out in the order of BlendSchedule by one counter, so the segments that
// one waits for were handed out before it and are being processed by warps that run. Those warps wait for nothing:
// transmittances and first segments have no predecessor. And groups that run in lockstep never wait for one another
// (first_segments).
#include "../../common/visible.cuh"
#include "blend_rays.cuh"
#include "split_lists.cuh"

namespace nurec::cuda {
namespace {

// Blocks that fit on a multiprocessor without spilling on any architecture.
constexpr int BLOCKS_PER_SM = 8;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr int BLOCKS_PER_SM_MOVING = 6;
#else
constexpr int BLOCKS_PER_SM_MOVING = 7;
#endif
template <bool MOVING>
constexpr int FORWARD_BLOCKS_PER_SM = MOVING ? BLOCKS_PER_SM_MOVING : BLOCKS_PER_SM;

template <bool MOVING, int C, bool LISTED>
__global__ void pack_gaussian_rows_kernel(RenderParams p, GaussianRow<MOVING, C>* rows) {
    wait_then_launch_dependents();
    for_visible_blocks<1, LISTED>(p.blocks, p.g.n, [&](int64_t first) {
        int64_t const i = first + threadIdx.x;
        if (i >= p.g.n || (p.visible && !p.visible[i])) return;
        float features[C];
#pragma unroll
        for (int c = 0; c < C; ++c) features[c] = p.features[C * i + c];
        rows[i] = make_gaussian_row<MOVING>(frame_on<MOVING>(p.path, frame_of(p.g, i)), p.g.opacities[i], features);
    });
}

// Announces that the group has stored its results. Returns how many groups announced themselves on this counter before.
// The fence makes the results visible before the count.
template <int C>
__device__ int signal(int* count) {
    constexpr unsigned OWN_LANES = GROUPS<C> == 1 ? ALL_LANES : (1u << LANES<C> % 32) - 1;
    int const first = int(threadIdx.x % 32) / LANES<C> * LANES<C>;
    unsigned const group = OWN_LANES << first;
    __threadfence();
    __syncwarp(group);
    int const before = threadIdx.x % LANES<C> ? 0 : atomicAdd(count, 1);
    return __shfl_sync(group, before, first);
}

// Finds the transmittance of a segment and stores it.
template <bool MOVING, int C>
__device__ void find_transmittance(RenderParams const& p, Segments const& segments, SegmentRange const& w,
                                   RowBatches<MOVING, C>& batches, int* ready) {
    LaneRay const ray = load_lane_ray<MOVING, C>(p, w);
    float q = 1;
    for_rows<4>(
        batches, segments.rows, w, ray, [&] { return ray.i >= 0 && q >= T_MIN; },
        [&](auto const&, RayResponse const& at) { q *= reaches(at.alpha, at.t) ? 1 - at.alpha : 1.f; });
    if (!w.segments) return;
    segment_field<C>(segments, w.segment, TRANSMITTANCE) = q;
    signal<C>(ready + w.list);
}

// Spins until the transmittances of all earlier segments are stored. It cannot deadlock: they were handed out before
// this segment (top of this file). The read is volatile; the fence orders it before the reads of the transmittances.
__device__ inline void wait_for_transmittances(SegmentRange const& w, int const* ready) {
    if (w.segment == w.first) return;
    while (*static_cast<int const volatile*>(ready + w.list) + 1 < w.segments) {
    }
    __threadfence();
}

// Range targets of a block's rays, in shared memory and read where they are needed: in registers they would be two more
// than there are. A camera's rays have none.
template <int C>
struct Targets {
    float volatile distance[C == 2 ? 32 * WARPS : 1], max_residual[C == 2 ? 32 * WARPS : 1];

    __device__ void keep(RangeTarget<float> mine) {
        distance[threadIdx.x] = mine.distance, max_residual[threadIdx.x] = mine.max_residual;
    }

    __device__ float range_residual(float t) const {
        return C == 2 ? nurec::range_residual(t, {distance[threadIdx.x], max_residual[threadIdx.x]}) : t;
    }
};

// Sums the segments of a list and stores the rays. P lanes a list.
template <int C>
__device__ void sum_segments(RenderParams const& p, RenderOutputs const& out, Segments const& segments,
                             SegmentRange const& w) {
    BlendState s;
#pragma unroll 4
    for (int64_t j = w.first; j < w.first + w.segments; ++j) {
        s.distance += segment_field<C>(segments, j, DISTANCE);
        s.median = larger(s.median, segment_field<C>(segments, j, MEDIAN));  // at most one segment has it
        float const end = segment_field<C>(segments, j, END_TRANSMITTANCE);
        s.q = end >= 0 ? end : s.q;
#pragma unroll
        for (int c = 0; c < C; ++c) s.features[c] += segment_field<C>(segments, j, FEATURES + c);
    }
    store_ray<C>(out, ray_of<C>(p, w), s);
}

// Returns whether this group stored the last missing segment of its list.
template <int C>
__device__ bool is_last_segment(SegmentRange const& w, int* done) {
    bool const last = signal<C>(done + w.list) + 1 == w.segments;
    __threadfence();
    return last;
}

template <bool MOVING, int C>
__device__ void blend_segment(RenderParams const& p, RenderOutputs const& out, Segments const& segments,
                              SegmentRange const& w, RowBatches<MOVING, C>& batches, Targets<C>& targets,
                              SplitLists const& split) {
    LaneRay const ray = load_lane_ray<MOVING, C>(p, w);
    if (C == 2) targets.keep(load_target(p, ray.i));
    wait_for_transmittances(w, split.ready);
    BlendState s;
    s.start = transmittance_before<C>(segments, w);
    bool open = ray.i >= 0 && s.start >= T_MIN;
    bool const began = open;
    for_rows<C == 3 ? 3 : 4>(
        batches, segments.rows, w, ray, [&] { return open; },
        [&](auto const& g, RayResponse const& at) { blend_one(g, at, targets, s, open); });
    if (w.segments == 1) store_ray<C>(out, ray.i, s);
    if (w.segments < 2) return;
    if (w.segments == PAIR && w.segment == w.first) {
        segment_field<C>(segments, w.segment, TRANSMITTANCE) = open ? s.q : 0.f;
        signal<C>(split.ready + w.list);
    }
    segment_field<C>(segments, w.segment, DISTANCE) = s.distance,
                                          segment_field<C>(segments, w.segment, MEDIAN) = s.median;
    segment_field<C>(segments, w.segment, END_TRANSMITTANCE) = began ? s.start * s.q : -1.f;
#pragma unroll
    for (int c = 0; c < C; ++c) segment_field<C>(segments, w.segment, FEATURES + c) = s.features[c];
    if (is_last_segment<C>(w, split.blended)) sum_segments<C>(p, out, segments, w);
}

// The order of work: (a) transmittances of lists with three or more segments; (b) the first segments of two-segment
// lists, which store their own transmittance; (c) half of the unsplit lists; (d) the remaining segments; their inputs
// are usually ready by now; (e) the other unsplit lists. Within each group the longest come first. Only (d) waits, for
// (a) and (b).
struct BlendSchedule {
    int transmittances, many, several, all;  // counts: work (a); segments of lists with three or more, two or more, any

    __device__ int pairs() const { return (several - many) / PAIR; }
    __device__ int early() const { return (all - several) / 2; }

    // Rounded up, so that GROUPS_PER_BLOCK segments that run together are either all first segments or none: none waits
    // for another.
    template <int GROUPS_PER_BLOCK>
    __device__ int first_segments() const {
        return (pairs() + GROUPS_PER_BLOCK - 1) / GROUPS_PER_BLOCK * GROUPS_PER_BLOCK;
    }

    template <int GROUPS_PER_BLOCK>
    __device__ int blended() const {
        return first_segments<GROUPS_PER_BLOCK>() + all - pairs();
    }

    // Returns the segment of a ticket after (a); -1: none.
    template <int GROUPS_PER_BLOCK>
    __device__ int segment(int ticket) const {
        if (ticket < first_segments<GROUPS_PER_BLOCK>()) return ticket < pairs() ? many + PAIR * ticket : -1;
        int k = ticket - first_segments<GROUPS_PER_BLOCK>();
        if (k < early()) return several + k;
        if ((k -= early()) < many) return k;
        if ((k -= many) < pairs()) return many + PAIR * k + 1;
        k += several - pairs() + early();
        return k < all ? k : -1;
    }
};

// On images, warps fetch work until none is left, so no warp waits for the longest one of its block.
template <bool MOVING, int C>
__global__ void __launch_bounds__(32 * WARPS, FORWARD_BLOCKS_PER_SM<MOVING>)
    renderForwardSegments_kernel(RenderParams p, RenderOutputs out, Segments segments, SplitLists split) {
    wait_then_launch_dependents();
    __shared__ RowBatches<MOVING, C> batches;
    __shared__ Targets<C> targets;
    __shared__ BlendSchedule schedule;  // in registers it would displace other values
    if (threadIdx.x == 0) schedule = {*split.n_before, *split.n_many, *split.n_several, int(segments.first[p.n_tiles])};
    __syncthreads();
    auto const at = [&](int segment) { return segment_at(p, segments, segment < 0 ? segments.most : segment); };
    auto const transmit = [&](int segment) { find_transmittance(p, segments, at(segment), batches, split.ready); };
    auto const blend = [&](int segment) { blend_segment(p, out, segments, at(segment), batches, targets, split); };
    if constexpr (C == 3) {
        for (int k; (k = fetch_work(split.next)) < schedule.transmittances + schedule.blended<1>(); __syncwarp())
            k < schedule.transmittances ? transmit(split.before[k])
                                        : blend(schedule.segment<1>(k - schedule.transmittances));
    } else {
        constexpr int GROUPS_PER_BLOCK = WARPS * GROUPS<C>;
        int const block = int(fetch_tile(split.next)),
                  transmitting = (schedule.transmittances + GROUPS_PER_BLOCK - 1) / GROUPS_PER_BLOCK;
        int const own = int(threadIdx.x) / LANES<C>,
                  k = GROUPS_PER_BLOCK * (block < transmitting ? block : block - transmitting) + own;
        int const first = k - own % GROUPS<C>;  // of the warp
        if (block < transmitting && first < schedule.transmittances)
            transmit(k < schedule.transmittances ? split.before[k] : -1);
        if (block >= transmitting && first < schedule.blended<GROUPS_PER_BLOCK>())
            blend(schedule.segment<GROUPS_PER_BLOCK>(k));
    }
}

template <bool MOVING, int C>
void launch(RenderParams const& p, RenderOutputs const& out, Segments const& segments, SplitLists const& split,
            Queue const& queue) {
    constexpr int GROUPS_PER_BLOCK = WARPS * GROUPS<C>, BLOCKS_PER_SM = FORWARD_BLOCKS_PER_SM<MOVING>;
    auto const before =
        unsigned((segments.most - p.n_tiles + GROUPS_PER_BLOCK - 1) / GROUPS_PER_BLOCK);  // for transmittances
    unsigned const blocks =
        C == 3 ? persistent_blocks<C>(segments, BLOCKS_PER_SM) : blocks_of<C>(segments) + before + 1;
    launch_pdl(renderForwardSegments_kernel<MOVING, C>, blocks, 32 * WARPS, queue, p, out, segments, split);
}

template <bool MOVING, int C>
void fill_rows(RenderParams const& p, float* rows, Queue const& queue) {
    auto* const to = reinterpret_cast<GaussianRow<MOVING, C>*>(rows);
    auto* const kernel =
        p.blocks.listed ? pack_gaussian_rows_kernel<MOVING, C, true> : pack_gaussian_rows_kernel<MOVING, C, false>;
    launch_pdl(kernel, blocks_for(p.blocks, p.g.n), THREADS, queue, p, to);
}

}  // namespace

void pack_gaussian_rows(RenderParams const& p, float* rows, Queue const& queue) {
    if (!p.g.n) return;
    auto* const fill = p.n_features == 2 ? fill_rows<true, 2> : p.moving ? fill_rows<true, 3> : fill_rows<false, 3>;
    fill(p, rows, queue);
}

void render_segments(RenderParams const& p, RenderOutputs const& out, Segments const& segments, Queue const& queue) {
    SplitLists const split = split_lists(p, segments, queue);
    if (!p.n_tiles) return;
    auto* const blend = p.n_features == 2 ? launch<true, 2> : p.moving ? launch<true, 3> : launch<false, 3>;
    blend(p, out, segments, split, queue);
}

}  // namespace nurec::cuda
