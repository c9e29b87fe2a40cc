// SPDX-License-Identifier: Apache-2.0
// What a camera's exposure and vignetting make of a colour; nurec_lite/scene/scene.py is the specification.
//
//     seen_c = colour_c exp(log_gain_c + radial . vignetting) + offset_c
#pragma once

#include "vec.cuh"

namespace nurec {

template <class T>
struct Exposure {
    Vec3<T> log_gain, offset, vignetting;
};

// Powers 2, 4 and 6 of a pixel's distance from the image's centre, 1 in the corners.
template <class T>
NUREC_FN Vec3<T> radial_at(int column, int row, int width, int height) {
    T const left = T(0.5) * T(width - 1), top = T(0.5) * T(height - 1), x = T(column) - left, y = T(row) - top;
    T const r2 = (y * y + x * x) / larger(top * top + left * left, T(1e-12));
    return {r2, r2 * r2, r2 * r2 * r2};
}

template <class T>
NUREC_FN Vec3<T> times_each(Vec3<T> a, Vec3<T> b) {
    return {a.x * b.x, a.y * b.y, a.z * b.z};
}

template <class T>
NUREC_FN Vec3<T> gain_at(Exposure<T> const& by, Vec3<T> radial) {
    T const fall = dot(radial, by.vignetting);
    return {exp(by.log_gain.x + fall), exp(by.log_gain.y + fall), exp(by.log_gain.z + fall)};
}

template <class T>
NUREC_FN Vec3<T> exposed_by(Exposure<T> const& by, Vec3<T> radial, Vec3<T> colour) {
    return times_each(colour, gain_at(by, radial)) + by.offset;
}

// Gradient of the colour; adds this pixel's to those of the exposure.
template <class T>
NUREC_FN Vec3<T> exposed_by_backward(Exposure<T> const& by, Vec3<T> radial, Vec3<T> colour, Vec3<T> d,
                                     Exposure<T>& sums) {
    Vec3<T> const d_colour = times_each(d, gain_at(by, radial)), d_log = times_each(d_colour, colour);
    sums.log_gain = sums.log_gain + d_log;
    sums.offset = sums.offset + d;
    sums.vignetting = sums.vignetting + (d_log.x + d_log.y + d_log.z) * radial;
    return d_colour;
}

}  // namespace nurec
