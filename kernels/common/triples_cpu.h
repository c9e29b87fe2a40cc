// SPDX-License-Identifier: Apache-2.0
// Rows of three numbers.
#pragma once

#include <cstdint>

#include "../math/vec.cuh"

namespace nurec::cpu {

inline Vec3<float> load(float const* a, int64_t i) {
    return {a[3 * i], a[3 * i + 1], a[3 * i + 2]};
}

inline void store(float* a, int64_t i, Vec3<float> v) {
    a[3 * i] = v.x, a[3 * i + 1] = v.y, a[3 * i + 2] = v.z;
}

}  // namespace nurec::cpu
