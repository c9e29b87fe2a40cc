// SPDX-License-Identifier: Apache-2.0
// Exposure and vignetting of a colour channel; nurec_lite/scene/scene.py is the specification.
//
//     seen = value exp(log_gain + radial . vignetting) + offset
#pragma once

#include "vec.cuh"

namespace nurec {

// Exposure of one colour channel; vignetting is that of all.
template <class T>
struct Exposure {
    T log_gain, offset;
    Vec3<T> vignetting;
};

// Powers 2, 4 and 6 of a pixel's distance from the image's centre, 1 in the corners.
template <class T>
NUREC_FN Vec3<T> radial_at(int column, int row, int width, int height) {
    T const left = T(0.5) * T(width - 1), top = T(0.5) * T(height - 1), x = T(column) - left, y = T(row) - top;
    T const r2 = (y * y + x * x) / larger(top * top + left * left, T(1e-12));
    return {r2, r2 * r2, r2 * r2 * r2};
}

template <class T>
NUREC_FN T gain_at(Exposure<T> const& by, Vec3<T> radial) {
    return exp(by.log_gain + dot(radial, by.vignetting));
}

template <class T>
NUREC_FN T exposed_by(Exposure<T> const& by, Vec3<T> radial, T value) {
    return value * gain_at(by, radial) + by.offset;
}

// Gradient of the value; adds to those of the exposure.
template <class T>
NUREC_FN T exposed_by_backward(Exposure<T> const& by, Vec3<T> radial, T value, T d, Exposure<T>& sums) {
    T const d_value = d * gain_at(by, radial), d_log = d_value * value;
    sums.log_gain += d_log;
    sums.offset += d;
    sums.vignetting = sums.vignetting + d_log * radial;
    return d_value;
}

}  // namespace nurec
