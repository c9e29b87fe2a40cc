// SPDX-License-Identifier: Apache-2.0
// Parts of the lists of bundles, one lane a ray.
#include "blend_rays.cuh"
#include "cut_lists.cuh"

namespace nurec::cuda {
namespace {

// Blocks that fit on a multiprocessor, without spilling on any architecture.
constexpr int BLOCKS = 8;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr int BLOCKS_MOVING = 6;
#else
constexpr int BLOCKS_MOVING = 7;
#endif
template <bool MOVING>
constexpr int FORWARD_BLOCKS = MOVING ? BLOCKS_MOVING : BLOCKS;

template <bool MOVING, int C>
__global__ void pack_gaussian_rows_kernel(RenderParams p, PartRow<MOVING, C>* rows) {
    wait_then_launch_dependents();
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.g.n || (p.visible && !p.visible[i])) return;
    float features[C];
#pragma unroll
    for (int c = 0; c < C; ++c) features[c] = p.features[C * i + c];
    rows[i] = part_row<MOVING>(frame_on<MOVING>(p.path, frame_of(p.g, i)), p.g.opacities[i], features);
}

// By a group, behind what it wrote: it counts itself for who is to read that. Returns how many did so before.
template <int C>
__device__ int count_self(int* count) {
    constexpr unsigned OWN_LANES = GROUPS<C> == 1 ? ALL_LANES : (1u << LANES<C> % 32) - 1;
    int const first = int(threadIdx.x % 32) / LANES<C> * LANES<C>;
    unsigned const group = OWN_LANES << first;
    __threadfence();
    __syncwarp(group);
    int const before = threadIdx.x % LANES<C> ? 0 : atomicAdd(count, 1);
    return __shfl_sync(group, before, first);
}

// What passes through a part.
template <bool MOVING, int C>
__device__ void pass_part(RenderParams const& p, Parts const& parts, Work const& w, Batches<MOVING, C>& batches,
                          int* passed) {
    Sight const ray = sight_of<MOVING, C>(p, w);
    float q = 1;
    for_rows<4>(
        batches, parts.rows, w, ray, [&] { return ray.i >= 0 && q >= T_MIN; },
        [&](auto const&, Met const& at) { q *= reaches(at.alpha, at.t) ? 1 - at.alpha : 1.f; });
    if (!w.parts) return;
    left_of<C>(parts, w.part, PASSES) = q;
    count_self<C>(passed + w.bundle);
}

// By a group: until it is known what passes through the parts before its own, which others find that came before.
__device__ inline void wait_for_passes(Work const& w, int const* passed) {
    if (w.part == w.first) return;
    while (*static_cast<int const volatile*>(passed + w.bundle) + 1 < w.parts) {
    }
    __threadfence();
}

// Of the rays of a block, in shared memory and read where they count: in registers they would be two more than there
// are. A camera's rays have none.
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

// Parts of a list, added up. P lanes a list.
template <int C>
__device__ void add_list(RenderParams const& p, RenderOutputs const& out, Parts const& parts, Work const& w) {
    State s;
#pragma unroll 4
    for (int64_t j = w.first; j < w.first + w.parts; ++j) {
        s.distance += left_of<C>(parts, j, DISTANCE);
        s.median = larger(s.median, left_of<C>(parts, j, MEDIAN));  // of one part, if of any
        float const end = left_of<C>(parts, j, END);
        s.q = end >= 0 ? end : s.q;
#pragma unroll
        for (int c = 0; c < C; ++c) s.features[c] += left_of<C>(parts, j, FEATURES + c);
    }
    store_ray<C>(out, ray_of<C>(p, w), s);
}

// By a group, which has left what it found of a part: whether that was the last one of its list that was missing.
template <int C>
__device__ bool is_last(Work const& w, int* done) {
    bool const last = count_self<C>(done + w.bundle) + 1 == w.parts;
    __threadfence();
    return last;
}

template <bool MOVING, int C>
__device__ void blend_part(RenderParams const& p, RenderOutputs const& out, Parts const& parts, Work const& w,
                           Batches<MOVING, C>& batches, Targets<C>& targets, Cut const& cut) {
    Sight const ray = sight_of<MOVING, C>(p, w);
    if (C == 2) targets.keep(load_target(p, ray.i));
    wait_for_passes(w, cut.passed);
    State s;
    s.start = passed<C>(parts, w);
    bool open = ray.i >= 0 && s.start >= T_MIN;
    bool const began = open;
    for_rows<C == 3 ? 3 : 4>(
        batches, parts.rows, w, ray, [&] { return open; },
        [&](auto const& g, Met const& at) { blend_one(g, at, targets, s, open); });
    if (w.parts == 1) store_ray<C>(out, ray.i, s);
    if (w.parts < 2) return;
    if (w.parts == PAIR && w.part == w.first) {
        left_of<C>(parts, w.part, PASSES) = open ? s.q : 0.f;
        count_self<C>(cut.passed + w.bundle);
    }
    left_of<C>(parts, w.part, DISTANCE) = s.distance, left_of<C>(parts, w.part, MEDIAN) = s.median;
    left_of<C>(parts, w.part, END) = began ? s.start * s.q : -1.f;
#pragma unroll
    for (int c = 0; c < C; ++c) left_of<C>(parts, w.part, FEATURES + c) = s.features[c];
    if (is_last<C>(w, cut.done)) add_list<C>(p, out, parts, w);
}

// What comes when: first what passes through parts of lists that have many, then the first parts of lists that have
// two, which tell that of themselves. Then half of the lists that are not cut; after these the other parts, by when
// what they wait for is known; then the other lists. Of each, the longest first.
struct Turns {
    int passes, many, cut, all;  // parts: of lists that have many, that have several, of all

    __device__ int pairs() const { return (cut - many) / PAIR; }
    __device__ int early() const { return (all - cut) / 2; }

    // EACH parts that run side by side do not wait for one another.
    template <int EACH>
    __device__ int first_parts() const {
        return (pairs() + EACH - 1) / EACH * EACH;
    }

    template <int EACH>
    __device__ int blended() const {
        return first_parts<EACH>() + all - pairs();
    }

    // -1: none.
    template <int EACH>
    __device__ int part(int turn) const {
        if (turn < first_parts<EACH>()) return turn < pairs() ? many + PAIR * turn : -1;
        int k = turn - first_parts<EACH>();
        if (k < early()) return cut + k;
        if ((k -= early()) < many) return k;
        if ((k -= many) < pairs()) return many + PAIR * k + 1;
        k += cut - pairs() + early();
        return k < all ? k : -1;
    }
};

// Of images, warps go on to parts that nobody has taken: so none waits for the longest of its block.
template <bool MOVING, int C>
__global__ void __launch_bounds__(32 * WARPS, FORWARD_BLOCKS<MOVING>)
    renderForwardSegments_kernel(RenderParams p, RenderOutputs out, Parts parts, Cut cut) {
    wait_then_launch_dependents();
    __shared__ Batches<MOVING, C> batches;
    __shared__ Targets<C> targets;
    __shared__ Turns turns;  // in registers its numbers would take the place of others
    if (threadIdx.x == 0) turns = {*cut.n_before, *cut.n_many, *cut.n_parts, int(parts.first[p.n_tiles])};
    __syncthreads();
    auto const at = [&](int part) { return work_at(p, parts, part < 0 ? parts.most : part); };
    auto const pass = [&](int part) { pass_part(p, parts, at(part), batches, cut.passed); };
    auto const blend = [&](int part) { blend_part(p, out, parts, at(part), batches, targets, cut); };
    if constexpr (C == 3) {
        for (int k; (k = fetch_work(cut.next)) < turns.passes + turns.blended<1>(); __syncwarp())
            k < turns.passes ? pass(cut.before[k]) : blend(turns.part<1>(k - turns.passes));
    } else {
        constexpr int EACH = WARPS * GROUPS<C>;
        int const block = int(fetch_tile(cut.next)), passing = (turns.passes + EACH - 1) / EACH;
        int const own = int(threadIdx.x) / LANES<C>, k = EACH * (block < passing ? block : block - passing) + own;
        int const first = k - own % GROUPS<C>;  // of the warp
        if (block < passing && first < turns.passes) pass(k < turns.passes ? cut.before[k] : -1);
        if (block >= passing && first < turns.blended<EACH>()) blend(turns.part<EACH>(k));
    }
}

template <bool MOVING, int C>
void launch(RenderParams const& p, RenderOutputs const& out, Parts const& parts, Cut const& cut, Queue const& queue) {
    constexpr int EACH = WARPS * GROUPS<C>, RESIDENT = FORWARD_BLOCKS<MOVING>;
    auto const before = unsigned((parts.most - p.n_tiles + EACH - 1) / EACH);  // what passes
    unsigned const blocks = C == 3 ? blocks_that_take<C>(parts, RESIDENT) : blocks_of<C>(parts) + before + 1;
    launch_pdl(renderForwardSegments_kernel<MOVING, C>, blocks, 32 * WARPS, queue, p, out, parts, cut);
}

template <bool MOVING, int C>
void fill_rows(RenderParams const& p, float* rows, Queue const& queue) {
    auto* const to = reinterpret_cast<PartRow<MOVING, C>*>(rows);
    launch_pdl(pack_gaussian_rows_kernel<MOVING, C>, blocks_for(p.g.n), THREADS, queue, p, to);
}

}  // namespace

void fill_part_rows(RenderParams const& p, float* rows, Queue const& queue) {
    if (!p.g.n) return;
    auto* const fill = p.n_features == 2 ? fill_rows<true, 2> : p.moving ? fill_rows<true, 3> : fill_rows<false, 3>;
    fill(p, rows, queue);
}

void render_parts(RenderParams const& p, RenderOutputs const& out, Parts const& parts, Queue const& queue) {
    Cut const cut = cut_lists(p, parts, queue);
    if (!p.n_tiles) return;
    auto* const blend = p.n_features == 2 ? launch<true, 2> : p.moving ? launch<true, 3> : launch<false, 3>;
    blend(p, out, parts, cut, queue);
}

}  // namespace nurec::cuda
