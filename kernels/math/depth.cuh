// SPDX-License-Identifier: Apache-2.0
// Sort keys of Gaussians from near to far, ascending as unsigned numbers.
#pragma once

#include <cstdint>
#include <cstring>

#include "vec.cuh"

namespace nurec {

constexpr int DEPTH_BITS = 32;  // of a key that has all of a distance's

// Floats of either sign in their order, -0 and 0 alike.
NUREC_FN uint32_t depth_key(float a) {
    a += 0.f;
    uint32_t bits;
    memcpy(&bits, &a, sizeof(bits));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// One of 2^bits keys over 16 octaves, 1/16 m to 4096 m: first the exponent, then the first bits of the mantissa. With
// 24 bits the distances of a key differ by less than 2^-20 of themselves, with 16 by 2^-12. Anything nearer, or behind
// the sensor, has the first key, anything farther the last.
NUREC_FN uint32_t short_depth_key(float a, int bits) {
    constexpr int ONE = 127 << 23, FIRST = ONE - (4 << 23), LAST = ONE + (12 << 23) - 1, KNOWN = 27;  // as floats' bits
    int number;
    memcpy(&number, &a, sizeof(number));  // negative for a negative distance
    number = number < FIRST ? FIRST : number > LAST ? LAST : number;
    return uint32_t(number - FIRST) >> (KNOWN - bits);
}

}  // namespace nurec
