// SPDX-License-Identifier: Apache-2.0
// Random numbers drawn inside a kernel: Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3"
// (2011), section 3.3. Numbers follow from a counter and a key alone, so nothing is stored between draws; each new
// count gives a new draw. Normal ones by Box and Muller, "A Note on the Generation of Random Normal Deviates" (1958).
#pragma once

#include <cstdint>

#include "vec.cuh"

namespace nurec {

struct Words {
    uint32_t a, b, c, d;
};

// A round of the paper's S-P network: two products; the lower halves trade places, and the upper halves take the key.
NUREC_FN Words philox_round(Words w, uint32_t key_0, uint32_t key_1) {
    uint64_t const left = uint64_t(0xD2511F53u) * w.a, right = uint64_t(0xCD9E8D57u) * w.c;
    return {uint32_t(right >> 32) ^ w.b ^ key_0, uint32_t(right), uint32_t(left >> 32) ^ w.d ^ key_1, uint32_t(left)};
}

// Between rounds keys advance by the golden ratio and by the root of 3 less 1.
NUREC_FN Words philox(Words counter, uint32_t key_0, uint32_t key_1) {
    for (uint32_t k = 0; k < 10; ++k) counter = philox_round(counter, key_0 + k * 0x9E3779B9u, key_1 + k * 0xBB67AE85u);
    return counter;
}

// Above 0 and below 1, by the upper 23 bits: the middles of so many equal parts, which a float holds exactly.
template <class T>
NUREC_FN T uniform_of(uint32_t word) {
    return (T(word >> 9) + T(0.5)) * T(1.0 / (1 << 23));
}

// (cos, sin) of so many whole turns. In full circles nothing is lost near the zeros, and CUDA's functions of radians
// would reserve stack for angles of thousands.
template <class T>
NUREC_FN Vec2<T> on_circle(T turns) {
#ifdef __CUDACC__
    return {cospi(2 * turns), sinpi(2 * turns)};
#else
    double const angle = 6.283185307179586 * double(turns);
    return {T(cos(angle)), T(sin(angle))};
#endif
}

// Two normal numbers from two words; 5.8 is the largest; one pair of 17 million would lie beyond.
template <class T>
NUREC_FN Vec2<T> normals_of(uint32_t far, uint32_t around) {
    T const radius = sqrt(-2 * log(uniform_of<T>(far)));
    Vec2<T> const at = on_circle(uniform_of<T>(around));
    return {radius * at.x, radius * at.y};
}

// Three normal numbers of a row in a step. Streams of a seed have nothing to do with one another.
template <class T>
NUREC_FN Vec3<T> drawn(uint32_t row, uint32_t step, uint32_t seed, uint32_t stream) {
    Words const w = philox({row, step, 0, 0}, seed, stream);
    Vec2<T> const first = normals_of<T>(w.a, w.b), second = normals_of<T>(w.c, w.d);
    return {first.x, first.y, second.x};
}

}  // namespace nurec
