// SPDX-License-Identifier: Apache-2.0
// A function over rows of numbers: arguments lie side by side in a row of `in`, the result in a row of `out`.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "../../../kernels/math/vec.cuh"

namespace nurec::testing {

template <class T>
constexpr int64_t numbers = sizeof(std::decay_t<T>) / sizeof(double);

template <class T>
NUREC_FN T read(double const* row) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(double) == 0);
    T value;
    memcpy(&value, row, sizeof(T));
    return value;
}

template <auto f>
struct Rows;

template <class Out, class... In, Out (*f)(In...)>
struct Rows<f> {
    static constexpr int64_t in = (numbers<In> + ...), out = numbers<Out>;

    static constexpr int64_t first(std::size_t argument) {
        int64_t const widths[] = {numbers<In>...};
        int64_t sum = 0;
        for (std::size_t k = 0; k < argument; ++k) sum += widths[k];
        return sum;
    }

    template <std::size_t... k>
    NUREC_FN static Out call(double const* row, std::index_sequence<k...>) {
        return f(read<std::decay_t<In>>(row + first(k))...);
    }

    NUREC_FN static void row(int64_t i, double const* in_rows, double* out_rows) {
        Out const value = call(in_rows + i * in, std::index_sequence_for<In...>());
        memcpy(out_rows + i * out, &value, sizeof(Out));
    }
};

#ifdef __CUDACC__
template <auto f>
__global__ void map_kernel(int64_t n, double const* in, double* out) {
    int64_t const i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) Rows<f>::row(i, in, out);
}

template <auto f>
void map(int64_t n, double const* in, double* out) {
    map_kernel<f><<<unsigned((n + 255) / 256), 256>>>(n, in, out);
}
#else
template <auto f>
void map(int64_t n, double const* in, double* out) {
    for (int64_t i = 0; i < n; ++i) Rows<f>::row(i, in, out);
}
#endif

}  // namespace nurec::testing

// math_NAME, and how many numbers it takes and gives.
#define NUREC_EXPORT(name, ...)                                                                                 \
    extern "C" {                                                                                                \
    int64_t widths_##name[2] = {nurec::testing::Rows<__VA_ARGS__>::in, nurec::testing::Rows<__VA_ARGS__>::out}; \
    void math_##name(int64_t n, double const* in, double* out) {                                                \
        nurec::testing::map<__VA_ARGS__>(n, in, out);                                                           \
    }                                                                                                           \
    }

// The same of an expression: its name, the type of its result, its arguments in parentheses.
#define NUREC_ROWS(name, Result, arguments, ...) \
    NUREC_FN Result rows_of_##name arguments {   \
        return __VA_ARGS__;                      \
    }                                            \
    NUREC_EXPORT(name, rows_of_##name)

// The same of a function template of that name.
#define NUREC_DOUBLE(name) NUREC_EXPORT(name, name<D>)
