// SPDX-License-Identifier: Apache-2.0
// Activations of stored parameters, and work on all Gaussians alike: regularisers, and noise of transparent ones.
// nurec_lite/scene/gaussians.py, nurec_lite/training/losses.py and density.py are the specification; for unit
// quaternions, se3.cuh.
#pragma once

#include "se3.cuh"

namespace nurec {

constexpr int LIDAR_VALUES = 2;  // that a lidar's ray blends: the first columns of its logits

template <class T>
NUREC_FN T sigmoid(T a) {
    return 1 / (1 + exp(-a));
}

// Gradient of the sigmoid, from its value.
template <class T>
NUREC_FN T sigmoid_backward(T value, T d) {
    return d * ((1 - value) * value);
}

constexpr double ALIKE = 0.01;  // opacities that differ by less are tied by the square

// |a - b|, rounded below (the smooth L1 of Girshick, "Fast R-CNN", 2015), and its derivative by a, which is that by b
// with the other sign.
template <class T>
NUREC_FN T tie_of(T a, T b) {
    T const apart = fabs(a - b);
    return apart < T(ALIKE) ? apart * apart * T(0.5 / ALIKE) : apart - T(0.5 * ALIKE);
}

template <class T>
NUREC_FN T tie_slope(T a, T b) {
    T const apart = a - b;
    return apart >= T(ALIKE) ? T(1) : apart <= T(-ALIKE) ? T(-1) : apart / T(ALIKE);
}

constexpr double DEAD = 0.005;  // opacity; a Gaussian of less counts as dead

// Share of the noise that a Gaussian of this opacity takes (3DGS-MCMC, Kheradmand et al. 2024, equation 10).
template <class T>
NUREC_FN T restless(T opacity) {
    return sigmoid(100 * (T(DEAD) - opacity));
}

// R(q / |q|) v: a vector v of the Gaussian's own axes, in the axes of its node.
template <class T>
NUREC_FN Vec3<T> turned(Quat<T> q, Vec3<T> v) {
    return quat_rotate(normalized(q), v);
}

}  // namespace nurec
