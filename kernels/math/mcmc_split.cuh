// SPDX-License-Identifier: Apache-2.0
// Copies in a Gaussian's place that together look as it did: equation 9 of 3DGS-MCMC (Kheradmand et al. 2024), for each
// sensor that has an opacity of its own. nurec_lite/training/density.py is the specification.
#pragma once

#include "activate.cuh"

namespace nurec {

constexpr int MAX_COPIES = 51;           // of one Gaussian
constexpr double UNSEEN = 1e-6;          // opacity that no ray responds to; its logarithm is finite
constexpr double SPLIT_MOST = 1 - 1e-7;  // opacity that is split
constexpr double COPY_MOST = 1 - 1e-6;   // opacity of a copy

constexpr int first_factor(int n) {
    return n * (n - 1) / 2;
}

// The numbers C(n, k + 1) (-1)^k / sqrt(k + 1), k < n, for n copies, from first_factor(n) on.
struct SplitFactors {
    double of[first_factor(MAX_COPIES + 1)];
};

// Square root by Newton's rule: the library's sqrt is no constant expression.
constexpr double root_of(int a) {
    double root = a;
    for (int i = 0; i < 12; ++i) root = (root + a / root) / 2;
    return root;
}

constexpr SplitFactors split_factors() {
    SplitFactors found = {};
    for (int k = 0; k < MAX_COPIES; ++k) {
        double const weight = (k % 2 ? -1 : 1) / root_of(k + 1);
        double binomial = 1;
        for (int n = k + 1; n <= MAX_COPIES; ++n) {
            found.of[first_factor(n) + k] = binomial * weight;
            binomial = binomial * (n + 1) / (n - k);  // exact: the product stays below 2^53
        }
    }
    return found;
}

// 1 - (1 - o)^(1/n), which n Gaussians have that together are as opaque as o.
NUREC_FN double split_opacity(double o, int n) {
    return n > 1 ? -expm1(log1p(-o) / n) : o;  // most stay one
}

// sum over k < n of C(n, k + 1) (-1)^k x^k / sqrt(k + 1), by Horner's rule.
template <int S>
NUREC_FN void alternating_sums(int n, double const (&x)[S], double (&sums)[S]) {
    static constexpr SplitFactors FACTORS = split_factors();
    double const* const factors = FACTORS.of + first_factor(n);
    for (int s = 0; s < S; ++s) sums[s] = 0;
    for (int k = n - 1; k >= 0; --k)
        for (int s = 0; s < S; ++s) sums[s] = sums[s] * x[s] + factors[k];
}

// Clamps a number; NaN stays NaN.
template <class T>
NUREC_FN T clamped(T a, T least, T most) {
    return a < least ? least : a > most ? most : a;
}

// Before the sigmoid. Copies of a Gaussian that some sensor sees well are not dead at once.
template <class T>
NUREC_FN T copy_logit(T opacity, bool greatest) {
    T const own = clamped(opacity, greatest ? T(DEAD) : T(UNSEEN), T(COPY_MOST));
    return log(own / (1 - own));
}

template <class T, int S>
struct SplitLogits {
    T logits[S];  // of each copy's opacities
    T factor;     // of its scales: the least over the sensors
};

// Logits of each copy for a Gaussian that S sensors see, and n copies, 1 to MAX_COPIES.
template <class T, int S>
NUREC_FN SplitLogits<T, S> split_logits(T const (&logits)[S], int n) {
    T seen[S], greatest = 0;
    double whole[S], split[S], sums[S];
    for (int s = 0; s < S; ++s) {
        seen[s] = sigmoid(logits[s]);
        greatest = larger(greatest, seen[s]);
        whole[s] = clamped(double(seen[s]), 0., SPLIT_MOST);
        split[s] = split_opacity(whole[s], n);
    }
    alternating_sums(n, split, sums);
    SplitLogits<T, S> found;
    for (int s = 0; s < S; ++s) {
        T const factor = T(whole[s] / (sums[s] * split[s]));
        found.factor = s && found.factor < factor ? found.factor : factor;
        found.logits[s] = copy_logit(T(split[s]), seen[s] == greatest);
    }
    return found;
}

}  // namespace nurec
