// SPDX-License-Identifier: Apache-2.0
// Blending along one ray, front to back: w = T alpha, T <- T (1 - alpha).
#pragma once

#include "gaussian.cuh"

namespace nurec {

constexpr float T_MIN = 1e-4f;  // a Gaussian that would take T below this is not blended and ends the ray

// Whether a Gaussian may be seen on a ray that has not ended.
template <class T>
NUREC_FN bool reaches(T alpha, T t) {
    return (alpha >= T(ALPHA_MIN)) & (t >= T(NEAR));
}

// Blends one Gaussian into a ray: returns its weight, 0 if it is skipped or ends the ray, and updates the
// transmittance `T_`.
template <class T>
NUREC_FN T blend_weight(T alpha, T t, T& T_, bool& open) {
    bool const seen = open & reaches(alpha, t);
    T const after = T_ * (1 - alpha);
    bool const kept = seen & (after >= T(T_MIN));
    open = open & (kept | !seen);
    T const weight = kept ? alpha * T_ : T(0);
    T_ = kept ? after : T_;
    return weight;
}

// dL/d(alpha_i) = T_i s_i - behind_i / (1 - alpha_i), with s_i = dL/d(w_i) and behind_i = sum_{j > i} w_j s_j + T_end
// dL/d(T_end). The sum behind is known: the outputs of the forward pass minus the Gaussians already passed.
template <class T>
NUREC_FN T blend_backward(T alpha, T weight, T T_before, T s, T& behind) {
    behind = behind - weight * s;
    return T_before * s - behind / (1 - alpha);
}

// Target of a ray's range, and the largest residual that counts. By default distances are themselves.
template <class T>
struct RangeTarget {
    T distance, max_residual;  // metres
};

constexpr float NO_LIMIT = 3.4e38f;
constexpr RangeTarget<float> NO_RANGE_TARGET = {0, NO_LIMIT};

// Term of a distance t in the sum along its ray: min(|t - target|, most), which is t without a target, since t > 0.
template <class T>
NUREC_FN T range_residual(T t, RangeTarget<T> target) {
    T const off = t - target.distance;
    return smaller(larger(off, -off), target.max_residual);
}

template <class T>
NUREC_FN T range_residual_backward(T t, RangeTarget<T> target, T d_missed) {
    T const off = t - target.distance;
    return larger(off, -off) <= target.max_residual ? (off < 0 ? -d_missed : d_missed) : T(0);
}

}  // namespace nurec
