// SPDX-License-Identifier: Apache-2.0
// The built-in functions of device code that the kernels use.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "block.h"

namespace emulation {

using At = std::source_location;

template <class T>
std::uint64_t bits_of(T value) {
    static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T>
T value_of(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

inline int lane() {
    return int((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % WARP);
}

template <class T>
T shuffled(char const* name, At at, unsigned mask, T value, int source) {
    return value_of<T>(meet_warp({name, at, mask}, Exchange::GIVE, bits_of(value), source));
}

inline std::uint64_t joined(char const* name, At at, unsigned mask, Exchange exchange, std::int64_t value) {
    return meet_warp({name, at, mask}, exchange, std::uint64_t(value), lane());
}

template <class T, class Function>
T replaced(T* at, Function const& function) {
    T const old = *at;
    *at = function(old);
    return old;
}

}  // namespace emulation

// ---- the block

inline void __syncthreads(emulation::At at = emulation::At::current()) {
    emulation::meet_block({"__syncthreads", at, 0}, false);
}

inline int __syncthreads_count(int vote, emulation::At at = emulation::At::current()) {
    return emulation::meet_block({"__syncthreads_count", at, 0}, vote != 0).yes;
}

inline int __syncthreads_or(int vote, emulation::At at = emulation::At::current()) {
    return emulation::meet_block({"__syncthreads_or", at, 0}, vote != 0).yes > 0;
}

inline int __syncthreads_and(int vote, emulation::At at = emulation::At::current()) {
    emulation::Votes const votes = emulation::meet_block({"__syncthreads_and", at, 0}, vote != 0);
    return votes.yes == votes.all;
}

inline void __threadfence() {}
inline void __threadfence_block() {}

// ---- the warp

inline void __syncwarp(unsigned mask = ~0u, emulation::At at = emulation::At::current()) {
    emulation::joined("__syncwarp", at, mask, emulation::Exchange::OR, 0);
}

inline unsigned __ballot_sync(unsigned mask, int vote, emulation::At at = emulation::At::current()) {
    return unsigned(emulation::joined("__ballot_sync", at, mask, emulation::Exchange::BALLOT, vote));
}

inline int __any_sync(unsigned mask, int vote, emulation::At at = emulation::At::current()) {
    return emulation::joined("__any_sync", at, mask, emulation::Exchange::BALLOT, vote) != 0;
}

inline int __all_sync(unsigned mask, int vote, emulation::At at = emulation::At::current()) {
    return emulation::joined("__all_sync", at, mask, emulation::Exchange::BALLOT, vote) == mask;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, emulation::At at = emulation::At::current()) {
    int const first = emulation::lane() & ~(width - 1);
    return emulation::shuffled("__shfl_sync", at, mask, value, first + (source & (width - 1)));
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, emulation::At at = emulation::At::current()) {
    int const lane = emulation::lane(), first = lane & ~(width - 1), source = lane - int(by);
    return emulation::shuffled("__shfl_up_sync", at, mask, value, source < first ? lane : source);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, emulation::At at = emulation::At::current()) {
    int const lane = emulation::lane(), last = lane | (width - 1), source = lane + int(by);
    return emulation::shuffled("__shfl_down_sync", at, mask, value, source > last ? lane : source);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, emulation::At at = emulation::At::current()) {
    int const lane = emulation::lane(), last = lane | (width - 1), source = lane ^ by;
    return emulation::shuffled("__shfl_xor_sync", at, mask, value, source > last ? lane : source);
}

#define NUREC_EMULATED_REDUCE(name, exchange, type)                                                          \
    inline type name(unsigned mask, type value, emulation::At at = emulation::At::current()) {               \
        return type(emulation::joined(#name, at, mask, emulation::Exchange::exchange, std::int64_t(value))); \
    }

NUREC_EMULATED_REDUCE(__reduce_add_sync, ADD, unsigned)
NUREC_EMULATED_REDUCE(__reduce_add_sync, ADD, int)
NUREC_EMULATED_REDUCE(__reduce_min_sync, MIN, unsigned)
NUREC_EMULATED_REDUCE(__reduce_min_sync, MIN, int)
NUREC_EMULATED_REDUCE(__reduce_max_sync, MAX, unsigned)
NUREC_EMULATED_REDUCE(__reduce_max_sync, MAX, int)
NUREC_EMULATED_REDUCE(__reduce_and_sync, AND, unsigned)
NUREC_EMULATED_REDUCE(__reduce_or_sync, OR, unsigned)
NUREC_EMULATED_REDUCE(__reduce_xor_sync, XOR, unsigned)
#undef NUREC_EMULATED_REDUCE

// ---- atomics, of the types that CUDA has: threads switch only where they meet

#define NUREC_EMULATED_ATOMIC(name, type, expression)                                 \
    inline type name(type* at, type value) {                                          \
        return emulation::replaced(at, [&](type old) -> type { return expression; }); \
    }
#define NUREC_EMULATED_INTEGERS(name, expression)     \
    NUREC_EMULATED_ATOMIC(name, int, expression)      \
    NUREC_EMULATED_ATOMIC(name, unsigned, expression) \
    NUREC_EMULATED_ATOMIC(name, unsigned long long, expression)

NUREC_EMULATED_INTEGERS(atomicAdd, old + value)
NUREC_EMULATED_ATOMIC(atomicAdd, float, old + value)
NUREC_EMULATED_ATOMIC(atomicAdd, double, old + value)
NUREC_EMULATED_INTEGERS(atomicMin, value < old ? value : old)
NUREC_EMULATED_INTEGERS(atomicMax, value > old ? value : old)
NUREC_EMULATED_INTEGERS(atomicAnd, old& value)
NUREC_EMULATED_INTEGERS(atomicOr, old | value)
NUREC_EMULATED_INTEGERS(atomicExch, (void(old), value))
NUREC_EMULATED_ATOMIC(atomicExch, float, (void(old), value))
NUREC_EMULATED_ATOMIC(atomicSub, int, old - value)
NUREC_EMULATED_ATOMIC(atomicSub, unsigned, old - value)
#undef NUREC_EMULATED_INTEGERS
#undef NUREC_EMULATED_ATOMIC

template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>);
    return emulation::replaced(at, [&](T old) { return old == expected ? value : old; });
}

// ---- numbers

inline int __popc(unsigned a) {
    return std::popcount(a);
}
inline int __popcll(unsigned long long a) {
    return std::popcount(a);
}
inline int __clz(int a) {
    return std::countl_zero(unsigned(a));
}
inline int __ffs(int a) {
    return a ? std::countr_zero(unsigned(a)) + 1 : 0;
}
inline unsigned __float_as_uint(float a) {
    return std::bit_cast<unsigned>(a);
}
inline int __float_as_int(float a) {
    return std::bit_cast<int>(a);
}
inline float __uint_as_float(unsigned a) {
    return std::bit_cast<float>(a);
}
inline float __int_as_float(int a) {
    return std::bit_cast<float>(a);
}
inline float rsqrtf(float a) {
    return 1 / sqrtf(a);
}
inline float __saturatef(float a) {
    return a > 0 ? (a < 1 ? a : 1.f) : 0.f;
}
inline float __fdividef(float a, float b) {
    return a / b;
}
#define __expf(a) expf(a)  // functions of glibc have these names, but are not for others
#define __logf(a) logf(a)
#define __sinf(a) sinf(a)
#define __cosf(a) cosf(a)
#define __powf(a, b) powf(a, b)

template <class T>
T __ldg(T const* at) {
    return *at;
}

#define NUREC_EMULATED_LIMITS(type)   \
    inline type min(type a, type b) { \
        return b < a ? b : a;         \
    }                                 \
    inline type max(type a, type b) { \
        return a < b ? b : a;         \
    }

NUREC_EMULATED_LIMITS(int)
NUREC_EMULATED_LIMITS(unsigned)
NUREC_EMULATED_LIMITS(long)
NUREC_EMULATED_LIMITS(unsigned long)
NUREC_EMULATED_LIMITS(long long)
NUREC_EMULATED_LIMITS(unsigned long long)
inline float min(float a, float b) {
    return fminf(a, b);
}
inline float max(float a, float b) {
    return fmaxf(a, b);
}
inline double min(double a, double b) {
    return fmin(a, b);
}
inline double max(double a, double b) {
    return fmax(a, b);
}
#undef NUREC_EMULATED_LIMITS
