// SPDX-License-Identifier: Apache-2.0
// Neighbouring rays of a sensor that moves at constant speed (rays.cuh): their origins lie on a line and their delays
// go with them. Ray j starts at r + s_j v, dt + s_j pace after the Gaussians' time, so that a Gaussian's g = M (r_j -
// mu) - M v' dt_j is a line, too: three products a pair instead of twelve.
#pragma once

#include "gaussian.cuh"

namespace nurec {

template <class T>
struct Travel {
    Vec3<T> r, v;  // metres; metres for s = 1
    T dt, pace;    // seconds; seconds for s = 1: 1, or 0 where delays are equal
};

// Along one that passes a and b, whose delays or, if these are equal, whose origins differ.
template <class T>
NUREC_FN Travel<T> travel_between(Ray<T> const& a, Ray<T> const& b) {
    T const late = b.dt - a.dt;
    if (late != 0) return {a.r, (1 / late) * (b.r - a.r), a.dt, T(1)};
    return {a.r, b.r - a.r, a.dt, T(0)};
}

// s of one of the rays.
template <class T>
NUREC_FN T place_on(Travel<T> const& along, Ray<T> const& ray) {
    if (along.pace != 0) return ray.dt - along.dt;
    T const length = dot(along.v, along.v);
    return length > 0 ? dot(ray.r - along.r, along.v) / length : T(0);
}

// The Gaussian's frame at s = 0, its drift by s.
template <class T>
NUREC_FN Frame<T> travelled(Frame<T> const& f, Travel<T> const& along) {
    return {f.M, f.g + f.M * along.r + along.dt * f.drift, f.M * along.v + along.pace * f.drift, f.k};
}

// From there, of the ray at s.
template <bool MOVING, class T>
NUREC_FN Response<T> respond_along(Frame<T> const& f, T opacity, Vec3<T> d, T s) {
    return respond_at(f, opacity, MOVING ? f.g + s * f.drift : f.g, d);
}

}  // namespace nurec
