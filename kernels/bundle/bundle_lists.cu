// SPDX-License-Identifier: Apache-2.0
// Lists of bundles. Of a Gaussian's candidates those are listed which the test of math/bundle.cuh cannot rule out. A
// thread goes through few candidates and remembers the hits, a warp through some, a block through very many, such as
// a Gaussian so near that it may be anywhere in the view.
#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../common/sort.h"
#include "../math/project.cuh"
#include "bounds.cuh"

namespace nurec::cuda {
namespace {

constexpr unsigned WHOLE_WARP = ~0u;
constexpr int FEW = 32, SOME = 1024;  // candidates at most
constexpr int BLOCKS = 1024;          // for Gaussians with more than a few

struct Seen {  // a Gaussian as bundles see it
    Frame<float> frame;
    float reach;
};

__device__ Seen seen(BundleParams const& p, int64_t i) {
    int64_t const k = p.index[i];
    return {make_frame(mean_of(p.g, k), quat_of(p.g, k), load3(p.g.scales, k), velocity_of(p.g, k)),
            reach_of(p.g.opacities[k])};
}

__device__ bool may_meet(BundleParams const& p, Seen const& s, Bundle<float> const& b) {
    return b.known > 0 && (!p.exact || b.known > 1 || meets(s.frame, s.reach, b));
}

// Calls visit(bundle, hit) for the candidates of a Gaussian, one after another.
template <class Visit>
__device__ void for_each(BundleParams const& p, int const* bins, Candidates const& c, Visit const& visit) {
    for (int row = c.row0; row <= c.row1; ++row) {
        Span const span = span_of(p.bundles, bins, c, row);
        for (int k = 0; k < span.size(); ++k) visit(span.at(k));
    }
}

// The same 32 at a time, by a warp: -1 for a lane without.
template <class Visit>
__device__ void for_32(BundleParams const& p, int const* bins, Candidates const& c, Visit const& visit) {
    int const lane = int(threadIdx.x) % 32;
    if (p.bundles.is_camera) {
        int const n = c.rows() * c.columns(), width = c.columns();
        for (int k = lane; k - lane < n; k += 32)
            visit(k < n ? (c.row0 + k / width) * p.bundles.columns + c.column0 + k % width : -1);
        return;
    }
    for (int row = c.row0; row <= c.row1; ++row) {
        Span const span = span_of(p.bundles, bins, c, row);
        for (int k = lane; k - lane < span.size(); k += 32) visit(k < span.size() ? span.at(k) : -1);
    }
}

// An interval of a row, by a warp: of 32 runs those that the Gaussian may meet, then two runs at a time.
template <class Visit>
__device__ void for_runs(BundleParams const& p, BundleWork const& work, Seen const& s, int row, Interval of,
                         Visit const& visit) {
    int const lane = int(threadIdx.x) % 32, begin = row_begin(p.bundles, row), base = runs_begin(p.bundles, row);
    if (of.size() <= 0) return;
    int const last = (of.end - 1 - begin) / RUN;
    for (int first = (of.begin - begin) / RUN; first <= last; first += 32) {
        bool const may = first + lane <= last && may_meet(p, s, work.runs[base + first + lane]);
        for (unsigned left = __ballot_sync(WHOLE_WARP, may); left; left &= left - 1) {
            int const one = __ffs(int(left)) - 1;
            if (left & (left - 1)) left &= left - 1;
            int const two = __ffs(int(left)) - 1;  // the same if there is one alone
            int const bundle = begin + RUN * (first + (lane < RUN ? one : two)) + lane % RUN;
            bool const inside = bundle >= of.begin && bundle < of.end && (lane < RUN || two != one);
            visit(inside ? bundle : -1);
        }
    }
}

// Calls visit(number among them, Gaussian, bundle or -1) for all candidates of Gaussians with very many, by warps.
template <class Visit>
__device__ void for_many(BundleParams const& p, BundleWork const& work, Visit const& visit) {
    int const warps = int(blockDim.x) / 32;
    for (int item = int(blockIdx.x); item < work.counters[1]; item += int(gridDim.x)) {
        int64_t const i = work.many[item];
        Candidates const c = candidates_of(p, i);
        Seen const s = seen(p, i);
        auto const one = [&](int bundle) {
            visit(item, i, bundle >= 0 && may_meet(p, s, work.bounds[bundle]) ? bundle : -1);
        };
        for (int row = c.row0 + int(threadIdx.x) / 32; row <= c.row1; row += warps) {
            Span const span = span_of(p.bundles, work.bins, c, row);
            for_runs(p, work, s, row, span.a, one);
            for_runs(p, work, s, row, span.b, one);
        }
    }
}

// Also says which Gaussians have more.
__global__ void count_few_kernel(BundleParams p, BundleWork work, int64_t* counts) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i > p.v) return;
    counts[i] = 0;
    if (i == p.v) return;
    Candidates const c = candidates_of(p, i);
    int const n = count_of(p.bundles, work.bins, c);
    uint32_t bits = 0;
    if (n > SOME)
        work.many[atomicAdd(work.counters + 1, 1)] = uint32_t(i);
    else if (n > FEW)
        work.some[atomicAdd(work.counters, 1)] = uint32_t(i);
    else if (n > 0) {
        Seen const s = seen(p, i);
        int k = 0;
        for_each(p, work.bins, c, [&](int b) { bits |= uint32_t(may_meet(p, s, work.bounds[b])) << k++; });
    }
    work.hits[i] = bits;
    counts[i] = __popc(bits);
}

// One warp a Gaussian with some candidates.
__global__ void count_some_kernel(BundleParams p, BundleWork work, int64_t* counts) {
    int64_t const warps = int64_t(gridDim.x) * blockDim.x / 32;
    for (int64_t item = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32; item < work.counters[0]; item += warps) {
        int64_t const i = work.some[item];
        Seen const s = seen(p, i);
        int n = 0;
        for_32(p, work.bins, candidates_of(p, i), [&](int b) {
            n += __popc(__ballot_sync(WHOLE_WARP, b >= 0 && may_meet(p, s, work.bounds[b])));
        });
        if (threadIdx.x % 32 == 0) counts[i] = n;
    }
}

__global__ void count_many_kernel(BundleParams p, BundleWork work, int64_t* counts) {
    for_many(p, work, [&](int, int64_t i, int hit) {
        unsigned const all = __ballot_sync(WHOLE_WARP, hit >= 0);
        if (threadIdx.x % 32 == 0 && all)
            atomicAdd(reinterpret_cast<unsigned long long*>(counts) + i, (unsigned long long)(__popc(all)));
    });
}

struct Out {
    Written written;
    int64_t room;
    __device__ void put(int64_t place, int bundle, int64_t gaussian) const {
        if (place >= room) return;
        written.tiles[place] = uint32_t(bundle), written.gaussians[place] = uint32_t(gaussian);
    }
};

__device__ int before_me(unsigned all) {
    return __popc(all & ((1u << (threadIdx.x % 32)) - 1));
}

__global__ void emit_few_kernel(BundleParams p, BundleWork work, int64_t const* counts, Out out) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    uint32_t const bits = i < p.v ? work.hits[i] : 0;
    if (!bits) return;
    int k = 0;
    int64_t place = counts[i];
    for_each(p, work.bins, candidates_of(p, i), [&](int b) {
        if (bits >> k++ & 1) out.put(place++, b, p.index[i]);
    });
}

__global__ void emit_some_kernel(BundleParams p, BundleWork work, int64_t const* counts, Out out) {
    int64_t const warps = int64_t(gridDim.x) * blockDim.x / 32;
    for (int64_t item = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32; item < work.counters[0]; item += warps) {
        int64_t const i = work.some[item];
        Seen const s = seen(p, i);
        int64_t place = counts[i];
        for_32(p, work.bins, candidates_of(p, i), [&](int b) {
            bool const hit = b >= 0 && may_meet(p, s, work.bounds[b]);
            unsigned const all = __ballot_sync(WHOLE_WARP, hit);
            if (hit) out.put(place + before_me(all), b, p.index[i]);
            place += __popc(all);
        });
    }
}

// An entry's place among those of its Gaussian does not matter: each stands in another list.
__global__ void emit_many_kernel(BundleParams p, BundleWork work, int64_t const* counts, Out out) {
    for_many(p, work, [&](int item, int64_t i, int hit) {
        unsigned const all = __ballot_sync(WHOLE_WARP, hit >= 0);
        int begin = 0;
        if (threadIdx.x % 32 == 0 && all) begin = atomicAdd(work.used + item, __popc(all));
        begin = __shfl_sync(WHOLE_WARP, begin, 0);
        if (hit >= 0) out.put(counts[i] + begin + before_me(all), hit, p.index[i]);
    });
}

}  // namespace

BundleWork bundle_work(BundleParams const& p, Queue const& queue) {
    auto const& memory = queue.memory;
    int64_t const bins = p.bundles.is_camera ? 0 : 2 * BINS * p.bundles.cells.bands;
    return {memory.array<Bundle<float>>(p.bundles.n), memory.array<Bundle<float>>(most_runs(p.bundles)),
            memory.array<int>(bins), memory.array<uint32_t>(p.v), memory.array<uint32_t>(p.v),
            memory.array<uint32_t>(p.v), zeros<int>(2, queue), zeros<int>(p.v, queue)};
}

void count_bundle_entries(BundleParams const& p, BundleWork const& work, int64_t* counts, Queue const& queue) {
    auto* each = queue.memory.array<int64_t>(p.v + 1);
    bound_bundles(p, work, queue);
    count_few_kernel<<<blocks_for(p.v + 1), THREADS, 0, queue.stream>>>(p, work, each);
    count_some_kernel<<<BLOCKS, THREADS, 0, queue.stream>>>(p, work, each);
    count_many_kernel<<<BLOCKS, THREADS, 0, queue.stream>>>(p, work, each);
    exclusive_sum(each, counts, p.v + 1, queue);
}

void list_bundle_entries(BundleParams const& p, BundleWork const& work, int64_t const* counts, Entries const& out,
                         Queue const& queue) {
    Out const to = {unwritten(out.room, queue), out.room};
    if (p.v) emit_few_kernel<<<blocks_for(p.v), THREADS, 0, queue.stream>>>(p, work, counts, to);
    emit_some_kernel<<<BLOCKS, THREADS, 0, queue.stream>>>(p, work, counts, to);
    emit_many_kernel<<<BLOCKS, THREADS, 0, queue.stream>>>(p, work, counts, to);
    sort_into_lists(to.written, p.bundles.n, out, queue);
}

}  // namespace nurec::cuda
