// SPDX-License-Identifier: Apache-2.0
// Checks the values of arrays before a driver reads them: one pass over each array, at the speed of memory.
#pragma once

#include <cstdint>

namespace nurec::cpu {

// The first place that breaks the rule; -1 if none does.
int64_t first_not_finite(float const* a, int64_t n);
int64_t first_not_positive(float const* a, int64_t n);
int64_t first_outside(int64_t const* a, int64_t n, int64_t low, int64_t high);  // of [low, high)
int64_t first_descent(int64_t const* a, int64_t n);                             // a[i] < a[i - 1]
int64_t first_descent(float const* a, int64_t n);

}  // namespace nurec::cpu
