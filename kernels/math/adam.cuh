// SPDX-License-Identifier: Apache-2.0
// One step of Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1) for one value, as
// torch.optim.Adam has it.
#pragma once

#include <cmath>

#include "vec.cuh"

namespace nurec {

template <class T>
struct AdamBetas {
    T first, second;            // shares of the moments that an update keeps
    T first_gain, second_gain;  // 1 less these, rounded once
    T epsilon;
};

template <class T>
NUREC_FN AdamBetas<T> adam_betas(double first, double second, double epsilon) {
    return {T(first), T(second), T(1 - first), T(1 - second), T(epsilon)};
}

template <class T>
struct AdamFactors {
    T size;  // rate / (1 - beta_1^t)
    T root;  // 1 / sqrt(1 - beta_2^t)
};

// Factors of step t = 1, 2, ...
template <class T>
NUREC_FN AdamFactors<T> adam_factors(double rate, double t, double first, double second) {
    return {T(rate / (1 - std::pow(first, t))), T(1 / std::sqrt(1 - std::pow(second, t)))};
}

template <class T>
struct AdamValue {
    T value, first, second;  // and its moments
};

template <class T>
NUREC_FN AdamValue<T> adam_step(AdamValue<T> a, T gradient, AdamBetas<T> const& betas, AdamFactors<T> const& by) {
    a.first = betas.first * a.first + betas.first_gain * gradient;
    a.second = betas.second * a.second + betas.second_gain * (gradient * gradient);
    a.value -= by.size * a.first / (std::sqrt(a.second) * by.root + betas.epsilon);
    return a;
}

}  // namespace nurec
