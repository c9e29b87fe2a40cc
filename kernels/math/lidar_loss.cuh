// SPDX-License-Identifier: Apache-2.0
// The loss of a rendered lidar ray that returned or did not. nurec_lite/training/losses.py is the specification.
#pragma once

#include "vec.cuh"

namespace nurec {

constexpr double SURE = 1e-6;  // a probability is at least so far from 0 and from 1

// Binary cross entropy: -log of the probability of the outcome, by `drop`, the probability that nothing returns. The
// outcome's own probability is clamped, since a probability near 1 has fewer digits. NaN stays NaN.
template <class T>
NUREC_FN T drop_cross_entropy(T drop, bool returned) {
    T const p = returned ? 1 - drop : drop;
    return -log(p < T(SURE) ? T(SURE) : p > T(1 - SURE) ? T(1 - SURE) : p);
}

// Its derivative by `drop`; 0 beyond the limits, which themselves count as within, as torch has it.
template <class T>
NUREC_FN T drop_cross_entropy_slope(T drop, bool returned) {
    if (!(drop >= T(SURE) && drop <= T(1 - SURE))) return 0;
    return returned ? 1 / (1 - drop) : -1 / drop;
}

}  // namespace nurec
