// SPDX-License-Identifier: Apache-2.0
// CUDA's small vectors.
#pragma once

#define NUREC_EMULATED_VECTOR(type, name, bytes)                    \
    struct name##2 {                                                \
        type x, y;                                                  \
    }                                                               \
    __attribute__((aligned(2 * bytes)));                            \
    struct name##3 {                                                \
        type x, y, z;                                               \
    };                                                              \
    struct name##4 {                                                \
        type x, y, z, w;                                            \
    }                                                               \
    __attribute__((aligned(bytes < 8 ? 4 * bytes : 16)));           \
    inline name##2 make_##name##2(type x, type y) {                 \
        return {x, y};                                              \
    }                                                               \
    inline name##3 make_##name##3(type x, type y, type z) {         \
        return {x, y, z};                                           \
    }                                                               \
    inline name##4 make_##name##4(type x, type y, type z, type w) { \
        return {x, y, z, w};                                        \
    }

NUREC_EMULATED_VECTOR(float, float, 4)
NUREC_EMULATED_VECTOR(double, double, 8)
NUREC_EMULATED_VECTOR(int, int, 4)
NUREC_EMULATED_VECTOR(unsigned, uint, 4)
NUREC_EMULATED_VECTOR(long long, longlong, 8)
NUREC_EMULATED_VECTOR(unsigned long long, ulonglong, 8)
#undef NUREC_EMULATED_VECTOR

struct dim3 {
    unsigned x, y, z;

    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
constexpr int warpSize = 32;
