// SPDX-License-Identifier: Apache-2.0
// Parts of the lists of bundles, one lane a ray.
#include "../common/look_back.cuh"
#include "blend_rays.cuh"

namespace nurec::cuda {
namespace {

// Blocks that fit on a multiprocessor, without spilling on any architecture.
constexpr int BLOCKS = 8;
template <bool MOVING>
constexpr int FORWARD_BLOCKS = MOVING ? 7 : BLOCKS;

__device__ int parts_of(int64_t entries, int64_t length) {
    return entries > length ? int((entries + length - 1) / length) : 1;
}

// A thread has a list, and the last one what lies behind all parts.
__global__ void cut_lists_kernel(int64_t const* offsets, int64_t lists, Parts parts, uint64_t* states, unsigned* next) {
    __shared__ int64_t end;
    int64_t const tile = next_tile(next), b = THREADS * tile + threadIdx.x;
    int const n = b < lists ? parts_of(offsets[b + 1] - offsets[b], parts.length) : 0;
    int64_t const first = begin_of<THREADS / 32>(states, tile, n);
    if (b <= lists) parts.first[b] = first;
    for (int k = 0; k < n; ++k) parts.bundle[first + k] = int(b);
    if (tile + 1 < gridDim.x) return;
    if (b == lists) end = first;
    __syncthreads();
    for (int64_t s = end + threadIdx.x; s < parts.most; s += THREADS) parts.bundle[s] = -1;
}

// Returns a zero, the part that nobody has taken.
int* cut_lists(RenderParams const& p, Parts const& parts, Queue const& queue) {
    unsigned const tiles = blocks_for(p.n_tiles + 1);
    auto* const states = zeros<uint64_t>(tiles + 1, queue);
    auto* const next = reinterpret_cast<unsigned*>(states + tiles);
    cut_lists_kernel<<<tiles, THREADS, 0, queue.stream>>>(p.offsets, p.n_tiles, parts, states, next);
    return reinterpret_cast<int*>(next + 1);
}

template <bool MOVING, int C>
__global__ void part_rows_kernel(RenderParams p, PartRow<MOVING, C>* rows) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= p.g.n || (p.visible && !p.visible[i])) return;
    float features[C];
#pragma unroll
    for (int c = 0; c < C; ++c) features[c] = p.features[C * i + c];
    rows[i] = part_row<MOVING>(frame_on<MOVING>(p.path, frame_of(p.g, i)), p.g.opacities[i], features);
}

// What passes through a part. The last of a list need not say.
template <bool MOVING, int C>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS) partPasses(RenderParams p, Parts parts) {
    Work w = work_at(p, parts, own_part<C>());
    bool const last = !w.parts || w.part + 1 == w.first + w.parts;
    if (GROUPS<C> == 1 ? last : __all_sync(ALL_LANES, last)) return;
    if (GROUPS<C> > 1 && last) w.n = 0;
    Sight const ray = sight_of<MOVING, C>(p, w);
    float q = 1;
    for_rows<MOVING, C, 4>(
        parts.rows, w, ray, [&] { return ray.i >= 0 && q >= T_MIN; },
        [&](auto const&, Met const& at) { q *= reaches(at.alpha, at.t) ? 1 - at.alpha : 1.f; });
    if (GROUPS<C> == 1 || w.n) left_of<C>(parts, w.part, PASSES) = q;
}

// Of the rays of a block, in shared memory and read where they count: in registers they would be two more than there
// are. A camera's rays have none.
template <int C>
struct Targets {
    float volatile distance[C == 2 ? 32 * WARPS : 1], most[C == 2 ? 32 * WARPS : 1];

    __device__ void keep(Target<float> mine) { distance[threadIdx.x] = mine.distance, most[threadIdx.x] = mine.most; }

    __device__ float missed(float t) const {
        return C == 2 ? nurec::missed(t, {distance[threadIdx.x], most[threadIdx.x]}) : t;
    }
};

template <bool MOVING, int C>
__device__ void blend_part(RenderParams const& p, RenderOutputs const& out, Parts const& parts, Work const& w,
                           Targets<C>& targets) {
    Sight const ray = sight_of<MOVING, C>(p, w);
    if (C == 2) targets.keep(load_target(p, ray.i));
    State s;
    s.start = passed<C>(parts, w);
    bool open = ray.i >= 0 && s.start >= T_MIN;
    bool const began = open;
    for_rows<MOVING, C, C == 3 ? 3 : 4>(
        parts.rows, w, ray, [&] { return open; },
        [&](auto const& g, Met const& at) { blend_one(g, at, targets, s, open); });
    if (w.parts == 1) store_ray<C>(out, ray.i, s);
    if (w.parts < 2) return;
    left_of<C>(parts, w.part, DISTANCE) = s.distance, left_of<C>(parts, w.part, MEDIAN) = s.median;
    left_of<C>(parts, w.part, END) = began ? s.start * s.q : -1.f;
#pragma unroll
    for (int c = 0; c < C; ++c) left_of<C>(parts, w.part, FEATURES + c) = s.features[c];
}

// Of images, warps go on to parts that nobody has taken: so none waits for the longest of its block.
template <bool MOVING, int C>
__global__ void __launch_bounds__(32 * WARPS, FORWARD_BLOCKS<MOVING>)
    partForward(RenderParams p, RenderOutputs out, Parts parts, int* next) {
    __shared__ Targets<C> targets;
    if constexpr (C == 3) {
        take_parts(p, parts, next,
                   [&](int64_t part) { blend_part<MOVING, C>(p, out, parts, work_at(p, parts, part), targets); });
    } else {
        Work const w = work_at(p, parts, own_part<C>());
        if (__any_sync(ALL_LANES, w.parts)) blend_part<MOVING, C>(p, out, parts, w, targets);
    }
}

// Parts of a list, added up. P lanes a bundle.
template <int C>
__global__ void add_parts(RenderParams p, RenderOutputs out, Parts parts) {
    int64_t const b = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / LANES<C>;
    if (b >= p.n_tiles || parts.first[b + 1] - parts.first[b] < 2) return;
    State s;
#pragma unroll 4
    for (int64_t j = parts.first[b]; j < parts.first[b + 1]; ++j) {
        s.distance += left_of<C>(parts, j, DISTANCE);
        s.median = larger(s.median, left_of<C>(parts, j, MEDIAN));  // of one part, if of any
        float const end = left_of<C>(parts, j, END);
        s.q = end >= 0 ? end : s.q;
#pragma unroll
        for (int c = 0; c < C; ++c) s.features[c] += left_of<C>(parts, j, FEATURES + c);
    }
    store_ray<C>(out, p.rays[LANES<C> * b + lane_of_group<C>()], s);
}

template <bool MOVING, int C>
void launch(RenderParams const& p, RenderOutputs const& out, Parts const& parts, int* next, cudaStream_t stream) {
    unsigned const blocks = blocks_of<C>(parts);
    partPasses<MOVING, C><<<blocks, 32 * WARPS, 0, stream>>>(p, parts);
    unsigned const taking = C == 3 ? blocks_that_take<C>(parts, FORWARD_BLOCKS<MOVING>) : blocks;
    partForward<MOVING, C><<<taking, 32 * WARPS, 0, stream>>>(p, out, parts, next);
    add_parts<C><<<blocks_for(LANES<C> * p.n_tiles), THREADS, 0, stream>>>(p, out, parts);
}

template <bool MOVING, int C>
void fill_rows(RenderParams const& p, float* rows, cudaStream_t stream) {
    auto* const to = reinterpret_cast<PartRow<MOVING, C>*>(rows);
    part_rows_kernel<MOVING, C><<<blocks_for(p.g.n), THREADS, 0, stream>>>(p, to);
}

}  // namespace

void fill_part_rows(RenderParams const& p, float* rows, Queue const& queue) {
    if (!p.g.n) return;
    auto* const fill = p.n_features == 2 ? fill_rows<true, 2> : p.moving ? fill_rows<true, 3> : fill_rows<false, 3>;
    fill(p, rows, queue.stream);
}

void render_parts(RenderParams const& p, RenderOutputs const& out, Parts const& parts, Queue const& queue) {
    int* const next = cut_lists(p, parts, queue);
    if (!p.n_tiles) return;
    auto* const blend = p.n_features == 2 ? launch<true, 2> : p.moving ? launch<true, 3> : launch<false, 3>;
    blend(p, out, parts, next, queue.stream);
}

}  // namespace nurec::cuda
