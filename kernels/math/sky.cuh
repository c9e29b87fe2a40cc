// SPDX-License-Identifier: Apache-2.0
// The sky: a map of logits by direction, and how an image lies over it; nurec_lite/scene/sky.py is the specification.
// Rows of the map go from elevation pi / 2 down to -pi / 2 and end at the poles, columns from azimuth pi down to -pi,
// and wrap. Texels lie at their centres: a direction is at column (1/2 - azimuth / 2 pi) W - 1/2.
#pragma once

#include "activate.cuh"
#include "vec.cuh"

namespace nurec {

constexpr double SKY_PI = 3.141592653589793;

// Place of a direction between four texels; `texel` and `weight` number them 0 to 3: the next column by the first bit,
// the next row by the second one. `first` says which four they are.
template <class T>
struct SkyPlace {
    int first;         // texel of a channel, the one above and to the left
    int right, below;  // texels from there to the next column and to the next row
    T across, down;    // 0 to 1

    NUREC_FN int texel(int corner) const { return first + (corner & 1 ? right : 0) + (corner & 2 ? below : 0); }
    NUREC_FN T weight(int corner) const { return (corner & 1 ? across : 1 - across) * (corner & 2 ? down : 1 - down); }
};

// Clamps to [low, high]; NaN becomes low.
template <class T>
NUREC_FN T within(T a, T low, T high) {
    return smaller(larger(a, low), high);
}

// The texels of any direction are in the map.
template <class T>
NUREC_FN SkyPlace<T> sky_place(Vec3<T> d, int height, int width) {
    T const flat = sqrt(larger(d.x * d.x + d.y * d.y, T(1e-30)));
    T const azimuth = atan2(d.y, d.x) * T(0.5 / SKY_PI), elevation = atan2(d.z, flat) * T(1 / SKY_PI);
    T const u = within((T(0.5) - azimuth) * T(width) - T(0.5), T(-0.5), T(width) - T(0.5));
    T const v = within((T(0.5) - elevation) * T(height) - T(0.5), T(0), T(height - 1));
    T const column = floor(u), row = floor(v);
    int const left = column < 0 ? width - 1 : int(column), top = int(row);
    int const right = left + 1 < width ? 1 : 1 - width, below = top + 1 < height ? width : 0;
    return {top * width + left, right, below, u - column, v - row};
}

// Bilinear between four texels of a channel.
template <class T>
NUREC_FN T sky_logit(T const* channel, SkyPlace<T> const& at) {
    T const a = channel[at.texel(0)], b = channel[at.texel(1)], c = channel[at.texel(2)], d = channel[at.texel(3)];
    T const above = a + at.across * (b - a), under = c + at.across * (d - c);
    return above + at.down * (under - above);
}

// Colour of a map [3, texels].
template <class T>
NUREC_FN Vec3<T> sky_colour(T const* sky, int texels, SkyPlace<T> const& at) {
    return {sigmoid(sky_logit(sky, at)), sigmoid(sky_logit(sky + texels, at)),
            sigmoid(sky_logit(sky + 2 * texels, at))};
}

template <class T>
struct SkyGrad {
    T transmittance;
    Vec3<T> logits;  // where the map was sampled
};

// Gradient of features + transmittance colour, from the gradient of that sum; the features' gradient is the same.
template <class T>
NUREC_FN SkyGrad<T> sky_backward(Vec3<T> colour, T transmittance, Vec3<T> d_image) {
    Vec3<T> const slope = {colour.x * (1 - colour.x), colour.y * (1 - colour.y), colour.z * (1 - colour.z)};
    Vec3<T> const d = transmittance * d_image;
    return {dot(d_image, colour), {d.x * slope.x, d.y * slope.y, d.z * slope.z}};
}

}  // namespace nurec
