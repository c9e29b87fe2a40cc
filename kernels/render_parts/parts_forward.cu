// SPDX-License-Identifier: Apache-2.0
// One warp a part of a bundle's list, one lane a ray.
#include "../common/sort.h"
#include "parts.cuh"

namespace nurec::cuda {
namespace {

__global__ void count_parts(int64_t const* offsets, int64_t n_bundles, int64_t length, int64_t* counts) {
    int64_t const b = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (b > n_bundles) return;
    int64_t const n = b < n_bundles ? offsets[b + 1] - offsets[b] : 0;
    counts[b] = b == n_bundles ? 0 : n > length ? (n + length - 1) / length : 1;
}

__global__ void name_parts(int64_t n_bundles, Parts parts) {
    int64_t const b = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (b >= n_bundles) return;
    for (int64_t s = parts.first[b]; s < parts.first[b + 1]; ++s) parts.bundle[s] = int(b);
}

void cut_lists(RenderParams const& p, Parts const& parts, Queue const& queue) {
    auto* counts = queue.memory.array<int64_t>(p.n_tiles + 1);
    count_parts<<<blocks_for(p.n_tiles + 1), THREADS, 0, queue.stream>>>(p.offsets, p.n_tiles, parts.length, counts);
    exclusive_sum(counts, parts.first, p.n_tiles + 1, queue);
    cudaMemsetAsync(parts.bundle, 0xff, sizeof(int) * parts.most, queue.stream);
    if (p.n_tiles) name_parts<<<blocks_for(p.n_tiles), THREADS, 0, queue.stream>>>(p.n_tiles, parts);
}

struct Batch {
    Row rows[32];
};

// A ray as staged rows see it.
struct Sight {
    int64_t i;  // -1: none
    Vec3<float> d;
    float s;
    Travel<float> along;
};

template <bool MOVING>
__device__ Sight sight_of(RenderParams const& p, Work const& w) {
    int64_t const i = ray_of(p, w);
    Ray<float> const ray = load_ray(p, i);
    if (!MOVING) return {i, ray.d, 0, {}};
    Travel<float> const along = travel_of(ray, i >= 0);
    return {i, ray.d, place_on(along, ray), along};
}

struct Met {  // of a Gaussian by a ray
    float alpha, t;
};

template <bool MOVING>
__device__ Met meet(Row const& g, Sight const& ray) {
    Response<float> const at = respond_along<MOVING>(g.frame, g.opacity, ray.d, ray.s);
    return {at.alpha, at.t};
}

// Calls function(row, met) for the entries of a part, as long as going() holds for a lane. AHEAD responses are found
// together, which do not wait for one another.
template <bool MOVING, int AHEAD, class Going, class Function>
__device__ void for_rows(Row const* rows, Work const& w, Sight const& ray, Going const& going,
                         Function const& function) {
    __shared__ Batch batches[WARPS];
    Batch& batch = batches[threadIdx.x / 32];
    int const lane = int(threadIdx.x) % 32;
    int64_t const* list = w.list;
    for (int left = w.n; left > 0; left -= 32, list += 32) {
        if (!__any_sync(ALL_LANES, going())) return;
        int const n = left < 32 ? left : 32;
        stage_rows<MOVING, 32>(rows, lane < n ? int(list[lane]) : 0, n, ray.along, batch.rows);
        int k = 0;
        for (; k + AHEAD <= n; k += AHEAD) {
            Met met[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) met[a] = meet<MOVING>(batch.rows[k + a], ray);
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) function(batch.rows[k + a], met[a]);
        }
        for (; k < n; ++k) function(batch.rows[k], meet<MOVING>(batch.rows[k], ray));
        __syncwarp();
    }
}

// What passes through a part. The last of a list need not say.
template <bool MOVING>
__global__ void __launch_bounds__(32 * WARPS) partPasses(RenderParams p, Parts parts) {
    Work const w = my_work(p, parts);
    if (!w.parts || w.part + 1 == w.first + w.parts) return;
    Sight const ray = sight_of<MOVING>(p, w);
    float q = 1;
    for_rows<MOVING, 4>(parts.rows, w, ray, [&] { return ray.i >= 0 && q >= T_MIN; },
                        [&](Row const&, Met const& at) { q *= reaches(at.alpha, at.t) ? 1 - at.alpha : 1.f; });
    left_of(p, parts, w.part, PASSES) = q;
}

struct State {
    float start = 1, q = 1;  // T is start times q: so two parts meet at the same T, to the last bit
    float distance = 0, median = 0;
    float features[MAX_FEATURES] = {};
};

// Of the rays of a block, in shared memory and read where they count: in registers they would be two more than there
// are. A camera's rays have none.
template <int C>
struct Targets {
    float volatile distance[C == 2 ? 32 * WARPS : 1], most[C == 2 ? 32 * WARPS : 1];

    __device__ void keep(Target<float> mine) {
        distance[threadIdx.x] = mine.distance, most[threadIdx.x] = mine.most;
    }

    __device__ Target<float> mine() const { return {distance[threadIdx.x], most[threadIdx.x]}; }
};

template <int C>
__device__ void blend_one(Row const& g, Met const& at, Targets<C> const& targets, State& s, bool& open) {
    bool const seen = open & reaches(at.alpha, at.t);
    float const before = s.start * s.q, q = s.q * (1 - at.alpha), after = s.start * q;
    bool const kept = seen & (after >= T_MIN);
    open = open & (kept | !seen);
    float const weight = kept ? at.alpha * before : 0.f;
    s.q = kept ? q : s.q;
#pragma unroll
    for (int c = 0; c < C; ++c) s.features[c] += weight * g.features[c];
    s.distance += weight * (C == 2 ? missed(at.t, targets.mine()) : at.t);
    s.median = kept & (before > 0.5f) & (after <= 0.5f) ? at.t : s.median;
}

template <int C>
__device__ void store_ray(RenderOutputs const& out, int64_t i, State const& s) {
    if (i < 0) return;
#pragma unroll
    for (int c = 0; c < C; ++c) out.features[C * i + c] = s.features[c];
    out.distance[i] = s.distance, out.transmittance[i] = s.q, out.median[i] = s.median;
}

template <bool MOVING, int C>
__global__ void __launch_bounds__(32 * WARPS) partForward(RenderParams p, RenderOutputs out, Parts parts) {
    Work const w = my_work(p, parts);
    if (!w.parts) return;
    Sight const ray = sight_of<MOVING>(p, w);
    __shared__ Targets<C> targets;
    if (C == 2) targets.keep(load_target(p, ray.i));
    State s;
    s.start = passed(p, parts, w);
    bool open = ray.i >= 0 && s.start >= T_MIN;
    bool const began = open;
    for_rows<MOVING, C == 3 ? 3 : 4>(parts.rows, w, ray, [&] { return open; },
                                     [&](Row const& g, Met const& at) { blend_one<C>(g, at, targets, s, open); });
    if (w.parts == 1) return store_ray<C>(out, ray.i, s);
    left_of(p, parts, w.part, DISTANCE) = s.distance, left_of(p, parts, w.part, MEDIAN) = s.median;
    left_of(p, parts, w.part, END) = began ? s.start * s.q : -1.f;
#pragma unroll
    for (int c = 0; c < C; ++c) left_of(p, parts, w.part, FEATURES + c) = s.features[c];
}

// Parts of a list, added up. One warp a bundle.
template <int C>
__global__ void add_parts(RenderParams p, RenderOutputs out, Parts parts) {
    int64_t const b = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32;
    if (b >= p.n_tiles || parts.first[b + 1] - parts.first[b] < 2) return;
    State s;
    for (int64_t j = parts.first[b]; j < parts.first[b + 1]; ++j) {
        s.distance += left_of(p, parts, j, DISTANCE);
        s.median = larger(s.median, left_of(p, parts, j, MEDIAN));  // of one part, if of any
        float const end = left_of(p, parts, j, END);
        s.q = end >= 0 ? end : s.q;
#pragma unroll
        for (int c = 0; c < C; ++c) s.features[c] += left_of(p, parts, j, FEATURES + c);
    }
    store_ray<C>(out, p.rays[32 * b + threadIdx.x % 32], s);
}

template <bool MOVING, int C>
void launch(RenderParams const& p, RenderOutputs const& out, Parts const& parts, cudaStream_t stream) {
    partPasses<MOVING><<<blocks_of(parts), 32 * WARPS, 0, stream>>>(p, parts);
    partForward<MOVING, C><<<blocks_of(parts), 32 * WARPS, 0, stream>>>(p, out, parts);
    add_parts<C><<<blocks_for(32 * p.n_tiles), THREADS, 0, stream>>>(p, out, parts);
}

}  // namespace

void render_parts(RenderParams const& p, RenderOutputs const& out, Parts const& parts, Queue const& queue) {
    fill_rows({p, parts.rows}, queue.stream);
    cut_lists(p, parts, queue);
    if (!p.n_tiles) return;
    if (p.n_features == 2)
        launch<true, 2>(p, out, parts, queue.stream);
    else
        (p.moving ? launch<true, 3> : launch<false, 3>)(p, out, parts, queue.stream);
}

}  // namespace nurec::cuda
