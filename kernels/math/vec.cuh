// SPDX-License-Identifier: Apache-2.0
// Small vectors and matrices for host and device. T is float in kernels and double where tests differentiate.
#pragma once

#ifdef __CUDACC__
#define NUREC_FN __host__ __device__ __forceinline__
#else
#define NUREC_FN inline __attribute__((always_inline))
#include <math.h>
#endif

namespace nurec {

template <class T>
struct Vec2 {
    T x, y;
};

template <class T>
struct Vec3 {
    T x, y, z;
};

template <class T>
struct Quat {
    T w, x, y, z;
};

// A symmetric matrix.
template <class T>
struct Sym2 {
    T xx, xy, yy;
};

// Rows.
template <class T>
struct Mat3 {
    Vec3<T> r0, r1, r2;
};

template <class T>
NUREC_FN Vec3<T> operator+(Vec3<T> a, Vec3<T> b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z};
}

template <class T>
NUREC_FN Vec3<T> operator-(Vec3<T> a, Vec3<T> b) {
    return {a.x - b.x, a.y - b.y, a.z - b.z};
}

template <class T>
NUREC_FN Vec3<T> operator*(T s, Vec3<T> a) {
    return {s * a.x, s * a.y, s * a.z};
}

template <class T>
NUREC_FN T dot(Vec3<T> a, Vec3<T> b) {
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

template <class T>
NUREC_FN Vec3<T> cross(Vec3<T> a, Vec3<T> b) {
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

template <class T>
NUREC_FN Vec3<T> operator*(Mat3<T> const& m, Vec3<T> a) {
    return {dot(m.r0, a), dot(m.r1, a), dot(m.r2, a)};
}

template <class T>
NUREC_FN Vec3<T> transposed_times(Mat3<T> const& m, Vec3<T> a) {
    return a.x * m.r0 + (a.y * m.r1 + a.z * m.r2);
}

template <class T>
NUREC_FN Mat3<T> transposed(Mat3<T> const& m) {
    return {{m.r0.x, m.r1.x, m.r2.x}, {m.r0.y, m.r1.y, m.r2.y}, {m.r0.z, m.r1.z, m.r2.z}};
}

template <class T>
NUREC_FN Mat3<T> operator*(Mat3<T> const& a, Mat3<T> const& b) {
    return {transposed_times(b, a.r0), transposed_times(b, a.r1), transposed_times(b, a.r2)};
}

template <class T>
NUREC_FN Vec2<T> operator*(Sym2<T> const& m, Vec2<T> a) {
    return {m.xx * a.x + m.xy * a.y, m.xy * a.x + m.yy * a.y};
}

template <class T>
NUREC_FN T dot(Vec2<T> a, Vec2<T> b) {
    return a.x * b.x + a.y * b.y;
}

// J S J^T.
template <class T>
NUREC_FN Sym2<T> stretched(Sym2<T> const& J, Sym2<T> const& S) {
    Vec2<T> const x = S * Vec2<T>{J.xx, J.xy}, y = S * Vec2<T>{J.xy, J.yy};
    return {J.xx * x.x + J.xy * x.y, J.xx * y.x + J.xy * y.y, J.xy * y.x + J.yy * y.y};
}

template <class T>
NUREC_FN T smaller(T a, T b) {
    return a < b ? a : b;
}

template <class T>
NUREC_FN T larger(T a, T b) {
    return a > b ? a : b;
}

}  // namespace nurec
