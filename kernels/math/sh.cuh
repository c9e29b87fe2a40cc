// SPDX-License-Identifier: Apache-2.0
// Colour by direction in real spherical harmonics of degree 0 to 3 (Sloan, "Efficient Spherical Harmonic Evaluation",
// JCGT 2013), with the signs of 3D Gaussian Splatting, and its derivatives; nurec_lite/geometry/harmonics.py is the
// specification. S coefficients: 1, 4, 9 or 16. Derivatives are those of the polynomials as they stand: the part
// along the direction vanishes where the direction is normalised.
#pragma once

#include "vec.cuh"

namespace nurec {

constexpr double SH_0 = 0.28209479177387814;    // sqrt(1 / (4 pi))
constexpr double SH_1 = 0.4886025119029199;     // sqrt(3 / (4 pi))
constexpr double SH_2 = 1.0925484305920792;     // sqrt(15 / pi) / 2
constexpr double SH_2Z = 0.31539156525252005;   // sqrt(5 / pi) / 4
constexpr double SH_3 = 0.5900435899266435;     // sqrt(35 / (2 pi)) / 4
constexpr double SH_3XYZ = 2.890611442640554;   // sqrt(105 / pi) / 2
constexpr double SH_3Z = 0.4570457994644658;    // sqrt(21 / (2 pi)) / 4
constexpr double SH_3ZZZ = 0.3731763325901154;  // sqrt(7 / pi) / 4

// In bands of m = -l .. l.
template <int S, class T>
NUREC_FN void sh_basis(Vec3<T> d, T (&b)[S]) {
    T const x = d.x, y = d.y, z = d.z;
    b[0] = T(SH_0);
    if constexpr (S > 1) b[1] = T(-SH_1) * y, b[2] = T(SH_1) * z, b[3] = T(-SH_1) * x;
    if constexpr (S > 4) {
        b[4] = T(SH_2) * x * y, b[5] = T(-SH_2) * y * z, b[6] = T(SH_2Z) * (3 * z * z - 1);
        b[7] = T(-SH_2) * x * z, b[8] = T(SH_2 / 2) * (x * x - y * y);
    }
    if constexpr (S > 9) {
        T const five = 5 * z * z - 1;
        b[9] = T(-SH_3) * y * (3 * x * x - y * y), b[10] = T(SH_3XYZ) * x * y * z, b[11] = T(-SH_3Z) * y * five;
        b[12] = T(SH_3ZZZ) * z * (5 * z * z - 3), b[13] = T(-SH_3Z) * x * five;
        b[14] = T(SH_3XYZ / 2) * z * (x * x - y * y), b[15] = T(-SH_3) * x * (x * x - 3 * y * y);
    }
}

// dL/d(direction) from dL/d(basis).
template <int S, class T>
NUREC_FN Vec3<T> sh_basis_backward(Vec3<T> d, T const (&g)[S]) {
    T const x = d.x, y = d.y, z = d.z;
    Vec3<T> sum = {0, 0, 0};
    if constexpr (S > 1) sum = T(SH_1) * Vec3<T>{-g[3], -g[1], g[2]};
    if constexpr (S > 4) {
        Vec3<T> const band = {y * g[4] - z * g[7] + x * g[8], x * g[4] - z * g[5] - y * g[8], -y * g[5] - x * g[7]};
        sum = sum + T(SH_2) * band;
        sum.z += T(6 * SH_2Z) * z * g[6];
    }
    if constexpr (S > 9) {
        T const five = T(SH_3Z) * (5 * z * z - 1), ten = T(10 * SH_3Z) * z;
        T const squares = x * x - y * y, three = T(3 * SH_3) * squares, six = T(6 * SH_3) * x * y;
        T const b10 = T(SH_3XYZ) * g[10], b14 = T(SH_3XYZ) * g[14];
        sum.x += y * z * b10 + x * z * b14 - six * g[9] - five * g[13] - three * g[15];
        sum.y += x * z * b10 - y * z * b14 - three * g[9] - five * g[11] + six * g[15];
        sum.z +=
            x * y * b10 + squares / 2 * b14 - ten * (y * g[11] + x * g[13]) + T(3 * SH_3ZZZ) * (5 * z * z - 1) * g[12];
    }
    return sum;
}

// Colour before it is clamped: 0.5 + sum of coefficients `sh` [S, 3] times basis. Here and below `sh` is an array, or
// an object with the same subscripts.
template <int S, class T, class Numbers>
NUREC_FN Vec3<T> sh_sum(Numbers const& sh, T const (&b)[S]) {
    Vec3<T> c = {T(0.5), T(0.5), T(0.5)};
    for (int k = 0; k < S; ++k) c = c + b[k] * Vec3<T>{sh[3 * k], sh[3 * k + 1], sh[3 * k + 2]};
    return c;
}

// Colour of at least 0 (3DGS, Kerbl et al. 2023).
template <int S, class T, class Numbers>
NUREC_FN Vec3<T> sh_colour(Numbers const& sh, Vec3<T> d) {
    T b[S];
    sh_basis(d, b);
    Vec3<T> const c = sh_sum(sh, b);
    return {c.x < 0 ? T(0) : c.x, c.y < 0 ? T(0) : c.y, c.z < 0 ? T(0) : c.z};
}

// dL/d(c) of a colour c before it is clamped: a clamped channel has no gradient.
template <class T>
NUREC_FN Vec3<T> sh_clamp_backward(Vec3<T> c, Vec3<T> d_colour) {
    return {c.x < 0 ? T(0) : d_colour.x, c.y < 0 ? T(0) : d_colour.y, c.z < 0 ? T(0) : d_colour.z};
}

// dL/d(direction), and dL/d(sh) [S, 3], which may take the place of sh.
template <int S, class T, class Numbers, class Gradients>
NUREC_FN Vec3<T> sh_colour_backward(Numbers const& sh, Vec3<T> d, Vec3<T> d_colour, Gradients&& d_sh) {
    T b[S], g[S];
    sh_basis(d, b);
    Vec3<T> const free = sh_clamp_backward(sh_sum(sh, b), d_colour);
    for (int k = 0; k < S; ++k) {
        g[k] = dot(free, Vec3<T>{sh[3 * k], sh[3 * k + 1], sh[3 * k + 2]});
        d_sh[3 * k] = b[k] * free.x, d_sh[3 * k + 1] = b[k] * free.y, d_sh[3 * k + 2] = b[k] * free.z;
    }
    return sh_basis_backward(d, g);
}

// The factors of sh_colour_backward's result: dL/d(sh) [S, 3] = basis(direction) x colour.
template <class T>
struct ShRank1Grad {
    Vec3<T> direction;  // dL/d(direction)
    Vec3<T> colour;     // dL/d(colour) before it is clamped
};

template <int S, class T, class Numbers>
NUREC_FN ShRank1Grad<T> sh_colour_rank1_backward(Numbers const& sh, Vec3<T> d, Vec3<T> d_colour) {
    T b[S], g[S];
    sh_basis(d, b);
    Vec3<T> const free = sh_clamp_backward(sh_sum(sh, b), d_colour);
    for (int k = 0; k < S; ++k) g[k] = dot(free, Vec3<T>{sh[3 * k], sh[3 * k + 1], sh[3 * k + 2]});
    return {sh_basis_backward(d, g), free};
}

}  // namespace nurec
