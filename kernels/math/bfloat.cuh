// SPDX-License-Identifier: Apache-2.0
// bfloat16, the upper half of a float, and rounding to it by chance: up or down, so that the mean is the number itself
// (Gupta et al., "Deep Learning with Limited Numerical Precision", 2015, section 3). With
// rounding to the nearest, a number that changes by less than half a unit in the last place would never change.
#pragma once

#include <cstdint>
#include <cstring>

#include "vec.cuh"

namespace nurec {

struct BFloat {
    uint16_t bits;
};

NUREC_FN float widened(float x) {
    return x;
}

NUREC_FN float widened(BFloat x) {
    uint32_t const bits = uint32_t(x.bits) << 16;
    float out;
    memcpy(&out, &bits, sizeof(out));
    return out;
}

// The 16 lower bits of `draw` are the chance. A number that a bfloat16 can hold stays. Numbers above the largest
// bfloat16, which would become infinite, are clamped to it.
NUREC_FN BFloat rounded(float x, uint32_t draw) {
    constexpr uint32_t LARGEST = 0x7f7f0000, INFINITE = 0x7f800000, QUIET = 0x400000;
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t const size = bits & 0x7fffffff, up = size < LARGEST ? draw & 0xffff : 0;
    uint32_t const mark = size > INFINITE ? QUIET : 0;  // else a NaN may lose all its mantissa bits
    return {uint16_t(((bits + up) | mark) >> 16)};
}

// 32 bits from 32; each depends on all: the permutation PCG-RXS-M-XS (O'Neill 2014), as a hash by Jarzynski
// and Olano, "Hash Functions for GPU Rendering", 2020.
NUREC_FN uint32_t mixed(uint32_t x) {
    uint32_t const state = x * 747796405u + 2891336453u;
    uint32_t const word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u;
    return (word >> 22) ^ word;
}

// Start of the draws of a tensor's step: value i draws mixed(start + i).
NUREC_FN uint32_t start_of_draws(uint32_t step, uint32_t tensor) {
    return mixed(mixed(step) + tensor);
}

}  // namespace nurec
