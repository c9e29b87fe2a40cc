// SPDX-License-Identifier: Apache-2.0
// Randomness of the simulated street, as nurec_lite/capture/simulate/noise.py defines it: pure functions of integer
// keys. The hash is "lowbias32" (C. Wellons).
#pragma once

#include <cstdint>

#include "../math/vec.cuh"

namespace nurec {

NUREC_FN uint32_t absorb(uint32_t h, uint32_t key) {
    h += (key + 1) * 0x9E3779B9u;
    h = (h ^ (h >> 16)) * 0x7FEB352Du;
    h = (h ^ (h >> 15)) * 0x846CA68Bu;
    return h ^ (h >> 16);
}

template <class T>
NUREC_FN T uniform_of_hash(uint32_t h) {  // in [0, 1)
    return T(h) * T(1.0 / 4294967296.0);
}

// Standard normal, by Box and Muller.
NUREC_FN double normal_of_hash(uint32_t h) {
    double const radius = sqrt(-2 * log1p(-uniform_of_hash<double>(absorb(h, 0))));
    return radius * cos(2 * 3.14159265358979323846 * uniform_of_hash<double>(absorb(h, 1)));
}

template <class T>
struct Cell {  // of the integer lattice, and the weight of its upper side
    uint32_t low;
    T weight;
};

template <class T>
NUREC_FN Cell<T> cell_of(T x) {
    T const low = floor(x), blend = x - low;
    return {uint32_t(int64_t(low)), blend * blend * (3 - 2 * blend)};
}

template <class T>
NUREC_FN T noise_along(uint32_t h, Cell<T> c) {
    T const low = uniform_of_hash<T>(absorb(h, c.low)), high = uniform_of_hash<T>(absorb(h, c.low + 1));
    return low + c.weight * (high - low);
}

template <class T>
NUREC_FN T noise_in_plane(uint32_t h, Cell<T> a, Cell<T> b) {
    T const low = noise_along(absorb(h, a.low), b), high = noise_along(absorb(h, a.low + 1), b);
    return low + a.weight * (high - low);
}

// In [0, 1), smooth, of wavelength about 2.
template <class T>
NUREC_FN T value_noise(uint32_t h, T x, T y) {
    return noise_in_plane(h, cell_of(x), cell_of(y));
}

template <class T>
NUREC_FN T value_noise(uint32_t h, Vec3<T> p) {
    Cell<T> const a = cell_of(p.x), b = cell_of(p.y), c = cell_of(p.z);
    T const low = noise_in_plane(absorb(h, a.low), b, c), high = noise_in_plane(absorb(h, a.low + 1), b, c);
    return low + a.weight * (high - low);
}

template <class T>
NUREC_FN T clamped(T x) {  // into [0, 1]
    return smaller(larger(x, T(0)), T(1));
}

template <class T>
NUREC_FN T integral_of_pulses(T phase, T duty) {
    return floor(phase) * duty + smaller(phase - floor(phase), duty);
}

// A train of pulses averaged over the footprint: all lengths in metres, duty is the share of the period that is on.
template <class T>
NUREC_FN T pulses(T x, T period, T duty, T footprint) {
    T const phase = x / period + duty / 2 - T(0.5), half = larger(footprint / period / 2, T(1e-4));
    return clamped((integral_of_pulses(phase + half, duty) - integral_of_pulses(phase - half, duty)) / (2 * half));
}

template <class T>
struct NonDeduced {
    using type = T;  // the type of an argument that does not deduce T
};

// One pulse between low and high, averaged over the footprint.
template <class T>
NUREC_FN T band(T x, typename NonDeduced<T>::type low, typename NonDeduced<T>::type high, T footprint) {
    T const half = larger(footprint, T(1e-3)) / 2;
    return clamped((smaller(x + half, high) - larger(x - half, low)) / (2 * half));
}

}  // namespace nurec
