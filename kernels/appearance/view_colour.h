// SPDX-License-Identifier: Apache-2.0
// Colours of Gaussians as an eye sees them. Pointers are those of the driver's device. Letters: S Gaussians that stand
// still, then A that move, N = S + A; K nodes.
#pragma once

#include "../common/blocks.h"
#include "../math/view_direction.cuh"
#include "sh.h"

namespace nurec {

struct Placements {
    int64_t n, still, nodes;   // N, S, K
    float const* still_means;  // [S, 3] metres
    float const* means;        // [A, 3]
    float const* rotations;    // [K, 4] unit, world from node
    int64_t const* node;       // [A] row of the above
    float const* eye;          // [3] metres
};

struct PlacementGrads {
    float* still_means;
    float* means;
    float* rotations;
};

struct SeenHarmonics {
    int64_t s;  // coefficients: 1, 4, 9 or 16
    Coefficients<float const> sh;
    uint8_t const* seen;   // [N] 0: its colour is not needed and stays 0; null: all are needed
    VisibleBlocks blocks;  // of others nothing is read or written
};

struct SeenHarmonicsGrads {
    float const* d_colour;  // [N, 3]
    Coefficients<float> sh;
};

// The same before the product: basis(directions) x colours is the gradient of the coefficients.
struct ShRank1 {
    float const* d_colour;  // [N, 3]
    float* directions;      // [N, 3] unit, in the axes of the node; any where colours are 0
    float* colours;         // [N, 3] d_colour, 0 where the colour was clamped
};

// Offset of a Gaussian from the eye, and rotation of its node.
struct EyeOffset {
    Vec3<float> r;
    Quat<float> q;  // of one that moves
    bool moves;
};

NUREC_FN EyeOffset eye_offset_of(Placements const& in, int64_t i) {
    bool const moves = i >= in.still;
    float const* m = moves ? in.means + 3 * (i - in.still) : in.still_means + 3 * i;
    EyeOffset from_eye = {{m[0] - in.eye[0], m[1] - in.eye[1], m[2] - in.eye[2]}, {1, 0, 0, 0}, moves};
    if (!moves) return from_eye;
    float const* q = in.rotations + 4 * in.node[i - in.still];
    from_eye.q = {q[0], q[1], q[2], q[3]};
    return from_eye;
}

// Where views look from, at Gaussians that stand still.
struct StillDirections {
    int64_t n, still, views;  // N, S, V
    float const* means;       // [N, 3] metres, world
    float const* eyes;        // [V, 3] metres
    VisibleBlocks blocks;     // of others nothing is read or written
    float* directions;        // [V, N, 3] unit; those of the first S
};

NUREC_FN Vec3<float> direction_of(EyeOffset const& from_eye) {
    return from_eye.moves ? local_view_direction(from_eye.q, from_eye.r) : view_direction(from_eye.r);
}

// Writes the gradient of a mean; returns that of the rotation.
NUREC_FN Quat<float> direction_backward(Placements const& in, PlacementGrads const& d, EyeOffset const& from_eye,
                                        int64_t i, Vec3<float> d_direction) {
    float* const to = from_eye.moves ? d.means + 3 * (i - in.still) : d.still_means + 3 * i;
    RotateGrad<float> const g = from_eye.moves
                                    ? local_view_direction_backward(from_eye.q, from_eye.r, d_direction)
                                    : RotateGrad<float>{{}, view_direction_backward(from_eye.r, d_direction)};
    to[0] = g.v.x, to[1] = g.v.y, to[2] = g.v.z;
    return g.q;
}

namespace cpu {

void view_colour(Placements const& in, SeenHarmonics const& sh, float* colour);  // [N, 3]
void view_colour_backward(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d,
                          SeenHarmonicsGrads const& d_sh);
void view_colour_rank1(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d, ShRank1 const& rank1);

}  // namespace cpu

namespace cuda {

void view_colour(Placements const& in, SeenHarmonics const& sh, float* colour, Queue const& queue);
void view_colour_backward(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d,
                          SeenHarmonicsGrads const& d_sh, Queue const& queue);
void view_colour_rank1(Placements const& in, SeenHarmonics const& sh, PlacementGrads const& d, ShRank1 const& rank1,
                       Queue const& queue);
void view_directions(StillDirections const& p, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
