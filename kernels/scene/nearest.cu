// SPDX-License-Identifier: Apache-2.0
// Points are sorted along a Morton curve and cut into leaves of LEAF points. The boxes of the leaves form a binary tree
// in the layout of a heap: node 1 is the root, the children of node i are 2 i and 2 i + 1. One thread takes a query
// down the tree, to nearer boxes first, and leaves out boxes beyond its farthest neighbour so far (Bentley 1975,
// Multidimensional binary search trees used for associative searching). Queries go in the order of the same curve, so
// that the threads of a warp visit the same leaves.
#include "../common/launch.cuh"
#include "../common/sort.h"
#include "../math/vec.cuh"
#include "nearest.h"

namespace nurec::cuda {
namespace {

constexpr int LEAF = 8;
constexpr int CURVE_BITS = 20;        // of each axis in a Morton code
constexpr int HALF = CURVE_BITS / 2;  // those that one sort takes
constexpr int MAX_WAITING = 32;       // nodes of a search: one for each level of the tree, and one more
constexpr int SEARCH_THREADS = 128;   // of a block
constexpr uint32_t SIDE = 1u << CURVE_BITS;

struct Bounds {
    Vec3<double> low, high;
};

struct Tree {
    int64_t n;              // points
    uint32_t leaves;        // a power of two, the last ones empty
    double* xyz;            // [n, 3] points in the order of the curve
    uint32_t const* order;  // [n] their numbers
    Bounds* bounds;         // [2 leaves]
};

// ---- the order along the curve

// Moves bit i of HALF bits to bit 3 i.
__device__ uint32_t spread(uint32_t x) {
    x = (x | x << 16) & 0x030000FF;
    x = (x | x << 8) & 0x0300F00F;
    x = (x | x << 4) & 0x030C30C3;
    return (x | x << 2) & 0x09249249;
}

// The cell of a coordinate between two ends that are `side` apart or less. The nearest cell is that of one beyond.
__device__ uint32_t cell_of(double x, double low, double side) {
    double const at = side > 0 ? (x - low) / side * SIDE : 0;
    return at > 0 ? (at < SIDE - 1 ? uint32_t(at) : SIDE - 1) : 0;
}

// Keys [n] of the points `order` names, or of all: `HALF` bits of each axis, from `lowest` on.
__global__ void __launch_bounds__(THREADS) encode_cells_kernel(double const* xyz, int64_t n, double const* ends,
                                                               uint32_t const* order, int lowest, uint32_t* keys) {
    wait_then_launch_dependents();
    int64_t const i = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    if (i >= n) return;
    double const* const at = xyz + 3 * (order ? order[i] : i);
    double const side = larger(larger(ends[3] - ends[0], ends[4] - ends[1]), ends[5] - ends[2]);
    uint32_t key = 0;
    for (int axis = 0; axis < 3; ++axis) {
        uint32_t const cell = cell_of(at[axis], ends[axis], side);
        key |= spread(cell >> lowest & ((1u << HALF) - 1)) << axis;
    }
    keys[i] = key;
}

// Numbers [n] of points, in the order of the curve.
uint32_t const* order_along_curve(double const* xyz, int64_t n, double const* ends, Queue const& queue) {
    auto* const keys = queue.memory.array<uint32_t>(n);
    uint32_t* order = nullptr;
    for (int lowest = 0; lowest < CURVE_BITS; lowest += HALF) {
        launch_pdl(encode_cells_kernel, blocks_for(n), THREADS, queue, xyz, n, ends, order, lowest, keys);
        auto* const sorted = queue.memory.array<uint32_t>(n);
        sort_pairs({n, keys, order, nullptr, sorted}, 3 * HALF, queue);
        order = sorted;
    }
    return order;
}

// ---- the tree

__device__ Vec3<double> at(double const* xyz, int64_t i) {
    return {xyz[3 * i], xyz[3 * i + 1], xyz[3 * i + 2]};
}

__device__ Bounds joined(Bounds a, Bounds b) {
    return {{smaller(a.low.x, b.low.x), smaller(a.low.y, b.low.y), smaller(a.low.z, b.low.z)},
            {larger(a.high.x, b.high.x), larger(a.high.y, b.high.y), larger(a.high.z, b.high.z)}};
}

// Copies the points into their order, and bounds those of each leaf.
__global__ void __launch_bounds__(THREADS) bound_leaves_kernel(Tree tree, double const* points) {
    wait_then_launch_dependents();
    int64_t const leaf = blockIdx.x * int64_t(THREADS) + threadIdx.x;
    if (leaf >= tree.leaves) return;
    Bounds found = {{INFINITY, INFINITY, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};
    for (int64_t i = leaf * LEAF; i < (leaf + 1) * LEAF && i < tree.n; ++i) {
        Vec3<double> const p = at(points, tree.order[i]);
        tree.xyz[3 * i] = p.x, tree.xyz[3 * i + 1] = p.y, tree.xyz[3 * i + 2] = p.z;
        found = joined(found, {p, p});
    }
    tree.bounds[tree.leaves + leaf] = found;
}

// Nodes first to 2 first - 1, which are one level.
__global__ void __launch_bounds__(THREADS) join_bounds_kernel(Bounds* bounds, uint32_t first) {
    wait_then_launch_dependents();
    uint32_t const i = blockIdx.x * THREADS + threadIdx.x;
    if (i < first) bounds[first + i] = joined(bounds[2 * (first + i)], bounds[2 * (first + i) + 1]);
}

Tree tree_of(NearestParams const& p, Queue const& queue) {
    uint32_t leaves = 1;
    while (leaves * int64_t(LEAF) < p.n) leaves *= 2;
    Tree const tree = {p.n, leaves, queue.memory.array<double>(3 * p.n),
                       order_along_curve(p.points, p.n, p.ends, queue), queue.memory.array<Bounds>(2 * leaves)};
    launch_pdl(bound_leaves_kernel, blocks_for(leaves), THREADS, queue, tree, p.points);
    for (uint32_t first = leaves / 2; first; first /= 2)
        launch_pdl(join_bounds_kernel, blocks_for(first), THREADS, queue, tree.bounds, first);
    return tree;
}

// ---- the search

// The nearest of the points so far, in ascending order. The first K - k places hold nothing, and never change.
template <int K>
struct Neighbours {
    double squares[K];
    uint32_t places[K];  // along the curve

    __device__ explicit Neighbours(int k) {
#pragma unroll
        for (int i = 0; i < K; ++i) squares[i] = i < K - k ? -1 : INFINITY, places[i] = 0;
    }

    __device__ double farthest() const { return squares[K - 1]; }

    __device__ void add(double square, uint32_t place) {
        if (!(square < farthest())) return;
#pragma unroll
        for (int i = K - 1; i >= 0; --i) {
            bool const after = i && squares[i - 1 < 0 ? 0 : i - 1] > square;  // the one before moves here
            if (after) {
                squares[i] = squares[i - 1], places[i] = places[i - 1];
            } else if (squares[i] > square) {
                squares[i] = square, places[i] = place;
            }
        }
    }
};

__device__ double gap(double x, double low, double high) {
    return larger(larger(low - x, x - high), 0.0);
}

__device__ double square_to(Bounds const& b, Vec3<double> p) {
    Vec3<double> const apart = {gap(p.x, b.low.x, b.high.x), gap(p.y, b.low.y, b.high.y), gap(p.z, b.low.z, b.high.z)};
    return dot(apart, apart);
}

template <int K>
__device__ void add_leaf(Tree const& tree, uint32_t leaf, Vec3<double> p, Neighbours<K>& found) {
    for (int64_t i = int64_t(leaf) * LEAF; i < (leaf + int64_t(1)) * LEAF && i < tree.n; ++i) {
        Vec3<double> const apart = at(tree.xyz, i) - p;
        found.add(dot(apart, apart), uint32_t(i));
    }
}

// Visits nodes that may still hold a neighbour, the nearer child of a node before the other one.
template <int K>
__device__ void search(Tree const& tree, Vec3<double> p, Neighbours<K>& found) {
    uint32_t nodes[MAX_WAITING] = {1};
    double squares[MAX_WAITING] = {0};
    for (int waiting = 1; waiting;) {
        uint32_t const node = nodes[--waiting];
        if (!(squares[waiting] < found.farthest())) continue;
        if (node >= tree.leaves) {
            add_leaf(tree, node - tree.leaves, p, found);
            continue;
        }
        double const left = square_to(tree.bounds[2 * node], p), right = square_to(tree.bounds[2 * node + 1], p);
        uint32_t const nearer = right < left;
        nodes[waiting] = 2 * node + !nearer, squares[waiting++] = nearer ? left : right;
        nodes[waiting] = 2 * node + nearer, squares[waiting++] = nearer ? right : left;
    }
}

template <int K>
__global__ void __launch_bounds__(SEARCH_THREADS)
    find_nearest_kernel(Tree tree, NearestParams p, uint32_t const* order) {
    wait_then_launch_dependents();
    int64_t const i = blockIdx.x * int64_t(SEARCH_THREADS) + threadIdx.x;
    if (i >= p.q) return;
    int64_t const query = order[i];
    Neighbours<K> found(p.k);
    search(tree, at(p.queries, query), found);
#pragma unroll
    for (int slot = 0; slot < K; ++slot) {
        int const column = slot - (K - p.k);
        if (column < 0) continue;
        p.distances[query * p.k + column] = sqrt(found.squares[slot]);
        p.numbers[query * p.k + column] = tree.order[found.places[slot]];
    }
}

}  // namespace

void find_nearest(NearestParams const& p, Queue const& queue) {
    if (!p.q) return;
    Tree const tree = tree_of(p, queue);
    uint32_t const* const order = order_along_curve(p.queries, p.q, p.ends, queue);
    auto const blocks = unsigned((p.q + SEARCH_THREADS - 1) / SEARCH_THREADS);
    launch_pdl(p.k == 1 ? find_nearest_kernel<1> : find_nearest_kernel<MAX_NEIGHBOURS>, blocks, SEARCH_THREADS, queue,
               tree, p, order);
}

}  // namespace nurec::cuda
