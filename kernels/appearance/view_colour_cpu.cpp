// SPDX-License-Identifier: Apache-2.0
// Gaussians of one node add to one rotation, so slices of them have rotations of their own, which are added in their
// order: the number of threads changes nothing.
#include <algorithm>
#include <vector>

#include "../common/triples_cpu.h"
#include "../common/visible_cpu.h"
#include "../math/sh.cuh"
#include "view_colour.h"

namespace nurec::cpu {
namespace {

constexpr int64_t SLICE = 1 << 12;  // Gaussians

template <int S>
void read(Coefficients<float const> const& sh, int64_t i, float (&numbers)[3 * S]) {
    for (int c = 0; c < 3 * S; ++c) numbers[c] = sh.at(i, c);
}

template <int S>
void forward(Placements const& in, SeenHarmonics const& sh, float* colour) {
    for_visible_gaussians(sh.blocks, in.n, [&](int64_t i) {
        if (sh.seen && !sh.seen[i]) return store(colour, i, Vec3<float>{0, 0, 0});
        float numbers[3 * S];
        read<S>(sh.sh, i, numbers);
        store(colour, i, sh_colour<S>(numbers, direction_of(eye_offset_of(in, i))));
    });
}

template <int S>
Quat<float> backward_of(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d,
                        SeenHarmonicsGrads const& d_sh, int64_t i) {
    float numbers[3 * S], gradients[3 * S];
    read<S>(sh.sh, i, numbers);
    EyeOffset const from_eye = eye_offset_of(in, i);
    Vec3<float> const d_direction =
        sh_colour_backward<S>(numbers, direction_of(from_eye), load(d_sh.d_colour, i), gradients);
    for (int c = 0; c < 3 * S; ++c) d_sh.sh.at(i, c) = gradients[c];
    return direction_backward(in, d, from_eye, i, d_direction);
}

template <int S>
Quat<float> backward_of(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d, ShRank1 const& rank1,
                        int64_t i) {
    float numbers[3 * S];
    read<S>(sh.sh, i, numbers);
    EyeOffset const from_eye = eye_offset_of(in, i);
    Vec3<float> const direction = direction_of(from_eye);
    ShRank1Grad<float> const found = sh_colour_rank1_backward<S>(numbers, direction, load(rank1.d_colour, i));
    store(rank1.directions, i, direction), store(rank1.colours, i, found.colour);
    return direction_backward(in, d, from_eye, i, found.direction);
}

void add(float* rotations, int64_t node, Quat<float> d) {
    float* const to = rotations + 4 * node;
    to[0] += d.w, to[1] += d.x, to[2] += d.y, to[3] += d.z;
}

template <int S, class Into>
void backward(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d, Into const& into) {
    int64_t const moving = in.n - in.still, slices = (moving + SLICE - 1) / SLICE, numbers = 4 * in.nodes;
    std::vector<float> sums(static_cast<std::size_t>(slices * numbers));
    for_visible_gaussians(sh.blocks, in.still, [&](int64_t i) { backward_of<S>(in, sh, d, into, i); });
#pragma omp parallel for schedule(static)
    for (int64_t s = 0; s < slices; ++s)
        for (int64_t a = s * SLICE; a < std::min(moving, (s + 1) * SLICE); ++a)
            add(sums.data() + s * numbers, in.node[a], backward_of<S>(in, sh, d, into, in.still + a));
    std::fill_n(d.rotations, numbers, 0.f);
    for (int64_t s = 0; s < slices; ++s)
        for (int64_t k = 0; k < numbers; ++k) d.rotations[k] += sums[static_cast<std::size_t>(s * numbers + k)];
}

template <class Into>
void backward_of_all(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d, Into const& into) {
    switch (sh.s) {
        case 1:
            return backward<1>(in, sh, d, into);
        case 4:
            return backward<4>(in, sh, d, into);
        case 9:
            return backward<9>(in, sh, d, into);
        default:
            return backward<16>(in, sh, d, into);
    }
}

}  // namespace

void view_colour(Placements const& in, SeenHarmonics const& sh, float* colour) {
    switch (sh.s) {
        case 1:
            return forward<1>(in, sh, colour);
        case 4:
            return forward<4>(in, sh, colour);
        case 9:
            return forward<9>(in, sh, colour);
        default:
            return forward<16>(in, sh, colour);
    }
}

void view_colour_backward(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d,
                          SeenHarmonicsGrads const& d_sh) {
    backward_of_all(in, sh, d, d_sh);
}

void view_colour_rank1(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d, ShRank1 const& rank1) {
    backward_of_all(in, sh, d, rank1);
}

}  // namespace nurec::cpu
