// SPDX-License-Identifier: Apache-2.0
// One thread a Gaussian, from its mean to its colour and back. Coefficients of unseen Gaussians, or of those without a
// gradient of the colour, are not read; they are most of a Gaussian's data. A block that needs none writes zeros.
// Gaussians of a node are neighbours, so the lanes of a warp that share one sum the gradient of its rotation before
// they write it.
#include "../common/triples.cuh"
#include "../common/visible.cuh"
#include "../math/sh.cuh"
#include "colour_blocks.cuh"
#include "view_colour.h"

namespace nurec::cuda {
namespace {

constexpr int PARTS = int(BLOCK_GAUSSIANS) / GAUSSIANS;  // of a block of the store, one for a block of threads

// Colours of the Gaussians from `begin` on. All threads of a block call it.
template <int S>
__device__ void shade_part(Placements const& in, SeenHarmonics const& sh, float* colour, int64_t begin,
                           WantedRows<S>& rows) {
    int64_t const i = begin + threadIdx.x;
    bool const seen = i < in.n && (!sh.seen || sh.seen[i]), some = __syncthreads_or(seen);
    if (some) rows.read(sh.sh, begin, in.n, seen);
    if (i >= in.n) return;
    store3(colour, i, seen ? sh_colour<S>(rows.mine(), direction_of(eye_offset_of(in, i))) : Vec3<float>{0, 0, 0});
}

template <int S, bool LISTED>
__global__ void __launch_bounds__(GAUSSIANS) shade_gaussians_kernel(Placements in, SeenHarmonics sh, float* colour) {
    __shared__ WantedRows<S> rows;
    for_visible_blocks<PARTS, LISTED>(sh.blocks, in.n,
                                      [&](int64_t begin) { shade_part<S>(in, sh, colour, begin, rows); });
}

__device__ Vec3<float> gradient_of(float const* d_colour, int64_t i, int64_t n) {
    return i < n ? load3(d_colour, i) : Vec3<float>{0, 0, 0};
}

template <int S>
__global__ void __launch_bounds__(GAUSSIANS)
    shade_gaussians_backward_kernel(Placements in, SeenHarmonics sh, PlacementGrads d, SeenHarmonicsGrads d_sh) {
    __shared__ WantedRows<S> rows;
    int64_t const begin = blockIdx.x * int64_t(GAUSSIANS), i = begin + threadIdx.x;
    Vec3<float> const d_colour = gradient_of(d_sh.d_colour, i, in.n);
    Quat<float> d_rotation = {};
    int node = -1;
    rows.read(sh.sh, begin, in.n, is_some(d_colour));
    if (i < in.n) {
        auto const mine = rows.mine();  // each coefficient is read before its gradient takes its place
        EyeOffset const from_eye = eye_offset_of(in, i);
        if (!is_some(d_colour))
            for (int c = 0; c < 3 * S; ++c) mine[c] = 0;
        Vec3<float> const d_direction = sh_colour_backward<S>(mine, direction_of(from_eye), d_colour, mine);
        d_rotation = direction_backward(in, d, from_eye, i, d_direction);
        if (from_eye.moves) node = int(in.node[i - in.still]);
    }
    add_to_rotations(d.rotations, node, d_rotation);
    __syncthreads();
    rows.write(d_sh.sh, in.n);
}

// Stores the gradients of a Gaussian in a block without a gradient of a colour.
__device__ void store_none(Placements const& in, PlacementGrads const& d, ShRank1 const& rank1, int64_t i) {
    bool const moves = i >= in.still;
    store3(rank1.directions, i, {0, 0, 0}), store3(rank1.colours, i, {0, 0, 0});
    store3(moves ? d.means : d.still_means, moves ? i - in.still : i, {0, 0, 0});
}

// Rank-1 gradients of the Gaussians from `begin` on. All threads of a block call it.
template <int S>
__device__ void differentiate_part(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d,
                                   ShRank1 const& rank1, int64_t begin, WantedRows<S>& rows) {
    int64_t const i = begin + threadIdx.x;
    Vec3<float> const d_colour = gradient_of(rank1.d_colour, i, in.n);
    if (!__syncthreads_or(is_some(d_colour))) {
        if (i < in.n) store_none(in, d, rank1, i);
        return;
    }
    Quat<float> d_rotation = {};
    int node = -1;
    rows.read(sh.sh, begin, in.n, is_some(d_colour));
    if (i < in.n) {
        EyeOffset const from_eye = eye_offset_of(in, i);
        Vec3<float> const direction = direction_of(from_eye);
        ShRank1Grad<float> found = {};
        if (is_some(d_colour)) found = sh_colour_rank1_backward<S>(rows.mine(), direction, d_colour);
        store3(rank1.directions, i, direction), store3(rank1.colours, i, found.colour);
        d_rotation = direction_backward(in, d, from_eye, i, found.direction);
        if (from_eye.moves) node = int(in.node[i - in.still]);
    }
    add_to_rotations(d.rotations, node, d_rotation);
}

// The same for the rank-1 gradient: 24 bytes a Gaussian instead of 12 S.
template <int S, bool LISTED>
__global__ void __launch_bounds__(GAUSSIANS)
    shade_gaussians_rank1_backward_kernel(Placements in, SeenHarmonics sh, PlacementGrads d, ShRank1 rank1) {
    __shared__ WantedRows<S> rows;
    for_visible_blocks<PARTS, LISTED>(sh.blocks, in.n,
                                      [&](int64_t begin) { differentiate_part<S>(in, sh, d, rank1, begin, rows); });
}

__global__ void __launch_bounds__(THREADS) view_directions_kernel(StillDirections p) {
    Vec3<float> const eye = load3(p.eyes, blockIdx.y);
    float* const to = p.directions + 3 * p.n * blockIdx.y;
    for_visible_blocks(p.blocks, p.still, [&](int64_t begin) {
        int64_t const i = begin + threadIdx.x;
        if (i < p.still) store3(to, i, view_direction(load3(p.means, i) - eye));
    });
}

template <int S>
void launch_forward(Placements const& in, SeenHarmonics const& sh, float* colour, Queue const& queue) {
    auto* const kernel = sh.blocks.listed ? shade_gaussians_kernel<S, true> : shade_gaussians_kernel<S, false>;
    kernel<<<blocks_for<PARTS>(sh.blocks, in.n), GAUSSIANS, 0, queue.stream>>>(in, sh, colour);
}

template <int S>
void launch_backward(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d,
                     SeenHarmonicsGrads const& d_sh, Queue const& queue) {
    shade_gaussians_backward_kernel<S><<<blocks_of(in.n), GAUSSIANS, 0, queue.stream>>>(in, sh, d, d_sh);
}

template <int S>
void launch_backward(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d, ShRank1 const& rank1,
                     Queue const& queue) {
    auto* const kernel = sh.blocks.listed ? shade_gaussians_rank1_backward_kernel<S, true>
                                          : shade_gaussians_rank1_backward_kernel<S, false>;
    kernel<<<blocks_for<PARTS>(sh.blocks, in.n), GAUSSIANS, 0, queue.stream>>>(in, sh, d, rank1);
}

template <class Into>
void backward(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d, Into const& into,
              Queue const& queue) {
    cudaMemsetAsync(d.rotations, 0, 4 * sizeof(float) * std::size_t(in.nodes), queue.stream);
    if (!in.n) return;
    switch (sh.s) {
        case 1:
            return launch_backward<1>(in, sh, d, into, queue);
        case 4:
            return launch_backward<4>(in, sh, d, into, queue);
        case 9:
            return launch_backward<9>(in, sh, d, into, queue);
        default:
            return launch_backward<16>(in, sh, d, into, queue);
    }
}

}  // namespace

void view_colour(Placements const& in, SeenHarmonics const& sh, float* colour, Queue const& queue) {
    if (!in.n) return;
    switch (sh.s) {
        case 1:
            return launch_forward<1>(in, sh, colour, queue);
        case 4:
            return launch_forward<4>(in, sh, colour, queue);
        case 9:
            return launch_forward<9>(in, sh, colour, queue);
        default:
            return launch_forward<16>(in, sh, colour, queue);
    }
}

void view_colour_backward(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d,
                          SeenHarmonicsGrads const& d_sh, Queue const& queue) {
    backward(in, sh, d, d_sh, queue);
}

void view_colour_rank1(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d, ShRank1 const& rank1,
                       Queue const& queue) {
    backward(in, sh, d, rank1, queue);
}

void view_directions(StillDirections const& p, Queue const& queue) {
    if (!p.still || !p.views) return;
    dim3 const grid(blocks_for(p.blocks, p.n), unsigned(p.views));
    view_directions_kernel<<<grid, THREADS, 0, queue.stream>>>(p);
}

}  // namespace nurec::cuda
