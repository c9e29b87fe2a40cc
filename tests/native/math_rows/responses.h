// SPDX-License-Identifier: Apache-2.0
// Adapters for responses of Gaussians along rays, their moments, blending, and spherical harmonics.
#pragma once

#include "../../../kernels/math/aligned_frame.cuh"
#include "../../../kernels/math/blend.cuh"
#include "../../../kernels/math/moments.cuh"
#include "../../../kernels/math/ray_pyramid.cuh"
#include "../../../kernels/math/rays.cuh"
#include "../../../kernels/math/sh.cuh"
#include "types.h"

namespace nurec::testing {

// ---- gaussian

template <bool MOVING>
NUREC_FN ResponseGrad<D> response_backward(F const& f, D opacity, Ray<D> const& ray, D d_alpha, D d_t) {
    return respond_backward(f, opacity, respond<MOVING>(f, opacity, ray), d_alpha, d_t);
}

// ---- moments

template <bool DISTANCE>
NUREC_FN RayMoments<D> ray_moments_of(F const& f, D opacity, Ray<D> const& ray, D d_alpha, D d_t) {
    return ray_moments<DISTANCE>(f, opacity, respond<true>(f, opacity, ray), d_alpha, d_t);
}

template <bool MOVING, bool DISTANCE>
NUREC_FN Moments<D> moments_with(Moments<D> sum, RayMoments<D> const& a, V e, D dt) {
    add_moments<MOVING, DISTANCE>(a, e, dt, sum);
    return sum;
}

// ---- aligned frames

template <bool MOVING>
NUREC_FN F seen_from(Trajectory<D> const& path, F const& f) {
    return MOVING ? relative_to_sensor(path, f) : f;
}

template <bool MOVING>
NUREC_FN AlignedFrame<D, MOVING> aligned_from(Trajectory<D> const& path, F const& f, D opacity) {
    F const seen = seen_from<MOVING>(path, f);
    return align<MOVING>(alignment_of(seen), seen, opacity);
}

struct Peak {
    D peak, alpha, t;
};

template <bool MOVING>
NUREC_FN Peak response_of(Trajectory<D> const& path, F const& f, D opacity, V d, D dt) {
    AlignedResponse<D> const at = evaluate(aligned_from<MOVING>(path, f, opacity), d, dt);
    return {at.peak, at.alpha, at.t};
}

template <bool MOVING, bool DISTANCE>
NUREC_FN Moments<D> aligned_moments(Trajectory<D> const& path, F const& f, D opacity, V d, D dt, D d_alpha, D d_t) {
    AlignedFrame<D, MOVING> const g = aligned_from<MOVING>(path, f, opacity);
    AlignedResponse<D> const at = evaluate(g, d, dt);
    D const d_peak = at.peak <= D(ALPHA_MAX) ? d_alpha * at.peak : 0;
    Moments<D> sum = {};
    add_moments<MOVING, DISTANCE>(aligned_ray_moments<MOVING, DISTANCE>(at.g, at.e, at.inverse, g.unit, d_peak, d_t),
                                  at.e, dt, sum);
    return unalign(alignment_of(seen_from<MOVING>(path, f)), opacity, sum);
}

template <bool MOVING>
NUREC_FN V nearest_point(Trajectory<D> const& path, F const& f, D opacity, V d, D dt) {
    AlignedFrame<D, MOVING> const g = aligned_from<MOVING>(path, f, opacity);
    V const e = g.M * d;
    return closest_point<MOVING>(drifted(g, dt), e, 1 / dot(e, e));
}

// ---- blend

struct Blended {
    D weight, T, open;
};

NUREC_FN Blended weight_of(D alpha, D t, D T, D open) {
    bool still = open > 0;
    D const weight = blend_weight(alpha, t, T, still);
    return {weight, T, D(still)};
}

struct FormAt {
    D value, sum;
};

NUREC_FN FormAt form_at(V const& p, V const& u, V const& v, D x, D y) {
    Form<D> const form = form_of(p, u, v);
    return {form.at(y) + x * (2 * form.slope(y) + x * form.xx), form.sum()};
}

NUREC_FN D may_meet(Trajectory<D> const& path, F const& f, D opacity, RayPyramid<D> const& rays,
                    BeamSlab<D> const& slab) {
    GroupTest<D> const group_test = nurec::group_test(aligned_from<true>(path, f, opacity), rays);
    return !(group_test.ahead < 0) && may_hit(group_test, slab);
}

struct BlendGrad {
    D d_alpha, behind;
};

NUREC_FN BlendGrad alpha_gradient(D alpha, D weight, D T_before, D s, D behind) {
    D const d_alpha = blend_backward(alpha, weight, T_before, s, behind);
    return {d_alpha, behind};
}

// ---- sh

template <int S>
NUREC_FN Array<S> basis(V d) {
    Array<S> out;
    sh_basis(d, out.a);
    return out;
}

template <int S>
NUREC_FN V basis_backward(V d, Array<S> const& g) {
    return sh_basis_backward(d, g.a);
}

template <int S>
NUREC_FN V raw_colour(Array<3 * S> const& sh, Array<S> const& b) {
    return sh_sum(sh.a, b.a);
}

template <int S>
NUREC_FN V colour(Array<3 * S> const& sh, V d) {
    return sh_colour<S>(sh.a, d);
}

template <int S>
struct ColourGrad {
    Array<3 * S> sh;
    V d;
};

template <int S>
NUREC_FN ColourGrad<S> colour_backward(Array<3 * S> const& sh, V d, V d_colour) {
    ColourGrad<S> out;
    out.d = sh_colour_backward<S>(sh.a, d, d_colour, out.sh.a);
    return out;
}

template <int S>
NUREC_FN ShRank1Grad<D> colour_outer(Array<3 * S> const& sh, V d, V d_colour) {
    return sh_colour_rank1_backward<S>(sh.a, d, d_colour);
}

}  // namespace nurec::testing
