// SPDX-License-Identifier: Apache-2.0
#include "check_cpu.h"

#include <cfloat>
#include <cmath>

namespace nurec::cpu {
namespace {

constexpr int64_t PARALLEL = 1 << 18;  // below, waking other threads costs more than the pass

template <class Breaks>
int64_t first_where(int64_t n, Breaks const& breaks) {
    int found = 0;
#pragma omp parallel for simd reduction(| : found) schedule(static) if (parallel : n > PARALLEL)
    for (int64_t i = 0; i < n; ++i) found |= breaks(i);
    int64_t first = 0;
    while (found && !breaks(first)) ++first;
    return found ? first : -1;
}

template <class T>
int64_t first_fall(T const* a, int64_t n) {
    int64_t const first = first_where(n - 1, [a](int64_t i) { return int(a[i + 1] < a[i]); });
    return first < 0 ? first : first + 1;
}

}  // namespace

int64_t first_not_finite(float const* a, int64_t n) {
    return first_where(n, [a](int64_t i) { return int(!(std::fabs(a[i]) <= FLT_MAX)); });
}

int64_t first_not_positive(float const* a, int64_t n) {
    return first_where(n, [a](int64_t i) { return int(!(a[i] > 0)); });
}

int64_t first_outside(int64_t const* a, int64_t n, int64_t low, int64_t high) {
    return first_where(n, [=](int64_t i) { return int((a[i] < low) | (a[i] >= high)); });
}

int64_t first_descent(int64_t const* a, int64_t n) {
    return first_fall(a, n);
}

int64_t first_descent(float const* a, int64_t n) {
    return first_fall(a, n);
}

}  // namespace nurec::cpu
