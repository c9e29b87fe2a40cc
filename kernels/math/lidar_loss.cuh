// SPDX-License-Identifier: Apache-2.0
// What a rendered lidar ray costs by whether it returned; nurec_lite/training/losses.py is the specification.
#pragma once

#include "vec.cuh"

namespace nurec {

constexpr double SURE = 1e-6;  // a probability is at least so far from 0 and from 1

// -log of the probability of what happened, by `drop`, the probability that nothing returns: binary cross entropy. It
// is the probability of what happened that is clamped, since the one near 1 has fewer digits. What is no number stays
// so.
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
