// SPDX-License-Identifier: Apache-2.0
// Structural similarity (Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", 2004)
// of one pixel of two images a and b, from moments under a Gaussian window, and its derivatives; nurec_lite/training/
// losses.py is the specification. With u = a + b and v = a - b
//   luminance (2 E[a] E[b] + C1) / (E[a]^2 + E[b]^2 + C1) = 1 - E[v]^2 / ((E[u]^2 + E[v]^2) / 2 + C1)
//   structure (2 cov[a, b] + C2) / (var[a] + var[b] + C2) = 1 - var[v] / ((var[u] + var[v]) / 2 + C2),
// which takes four moments instead of five, and is exactly 1 where a = b.
#pragma once

#include "vec.cuh"

namespace nurec {

constexpr int SSIM_HALF = 5;  // taps of the window on either side of its middle
constexpr int SSIM_TAPS = 2 * SSIM_HALF + 1;
constexpr double SSIM_C1 = 0.01 * 0.01, SSIM_C2 = 0.03 * 0.03;  // for values in 0..1

// exp(-((k - 5) / 1.5)^2 / 2), divided by the sum over k = 0..10.
template <class T>
NUREC_FN T ssim_window(int k) {
    int const away = k < SSIM_HALF ? SSIM_HALF - k : k - SSIM_HALF;
    return T(away == 0   ? 0.2660117248617943
             : away == 1 ? 0.21300553771125366
             : away == 2 ? 0.1093606895097
             : away == 3 ? 0.03600077212843082
             : away == 4 ? 0.007598758135239184
                         : 0.001028380084479109);
}

template <class T>
struct SsimMoments {
    T u, v, uu, vv;  // means of u, v, u^2 and v^2 under the window
};

template <class T>
struct Ssim {
    T value;
    T mean, sum, difference;  // the derivative by a pixel's a is mean + u sum + v difference, times the window there
};

template <class T>
NUREC_FN Ssim<T> ssim_of(SsimMoments<T> const& m) {
    T const light = 1 / ((m.u * m.u + m.v * m.v) / 2 + T(SSIM_C1)), apart = m.vv - m.v * m.v;
    T const spread = 1 / ((m.uu - m.u * m.u + apart) / 2 + T(SSIM_C2));
    T const darker = m.v * m.v * light, other = apart * spread;  // 1 minus luminance, 1 minus structure
    T const luminance = 1 - darker, structure = 1 - other, both = m.u + m.v;
    T const mean = structure * light * (darker * both - 2 * m.v) - luminance * spread * (other * both - 2 * m.v);
    return {luminance * structure, mean, luminance * other * spread, luminance * (other - 2) * spread};
}

// d/da of all values, from the slopes blurred by the window, at a pixel.
template <class T>
NUREC_FN T ssim_backward(T a, T b, T mean, T sum, T difference) {
    return mean + (a + b) * sum + (a - b) * difference;
}

// 1, 0 or -1: the derivative of |x| as torch has it.
template <class T>
NUREC_FN T sign_of(T x) {
    return T((x > 0) - (x < 0));
}

}  // namespace nurec
