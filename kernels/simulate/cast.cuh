// SPDX-License-Identifier: Apache-2.0
// A ray meets the solids of the street: nurec_lite/capture/simulate/cast.py for one ray, by a tree of boxes.
#pragma once

#include "noise.cuh"
#include "street.h"

namespace nurec {

constexpr double NEAREST = 0.05, FARTHEST = 2000;  // metres: nothing nearer is seen, and ground beyond is sky
constexpr int DEEPEST = 32;                        // levels of a tree, which halves the solids at each

#ifdef __CUDACC__
#define NUREC_CALL __host__ __device__ __noinline__
#else
#define NUREC_CALL inline
#endif

template <class T>
struct Line {
    Vec3<T> o, d;  // origin and unit direction
};

template <class T>
struct Meeting {
    T t;       // metres
    int row;   // of the solid; -1: none
    int face;  // of a hull
};

template <class T>
NUREC_FN Vec3<T> vec(T const* v) {
    return {v[0], v[1], v[2]};
}

template <class T>
NUREC_FN Vec3<T> turned(T const* r, int stride, Vec3<T> v) {  // rows of a matrix `stride` numbers apart
    return {dot(vec(r), v), dot(vec(r + stride), v), dot(vec(r + 2 * stride), v)};
}

template <class T>
NUREC_FN Vec3<T> turned_back(T const* r, int stride, Vec3<T> v) {
    return v.x * vec(r) + (v.y * vec(r + stride) + v.z * vec(r + 2 * stride));
}

template <class T>
NUREC_FN Vec3<T> times(Vec3<T> a, Vec3<T> b) {
    return {a.x * b.x, a.y * b.y, a.z * b.z};
}

// From the last plane by which a ray enters to the first by which it leaves (Kay, Kajiya 1986).
template <class T>
NUREC_FN void meet_hull(Solid<T> const& s, int faces, int row, Line<T> const& ray, Meeting<T>& best) {
    T enter = -INFINITY, leave = INFINITY;
    int face = 0;
    for (int k = 0; k < faces; ++k) {
        T const* const plane = s.planes[k];
        T speed = dot(ray.d, vec(plane));
        if (speed > T(-1e-12) && speed < T(1e-12)) speed = T(1e-12);
        T const t = (plane[3] - dot(ray.o, vec(plane))) / speed;
        if (speed > 0) {
            leave = smaller(leave, t);
        } else if (t > enter) {
            enter = t, face = k;
        }
    }
    if (enter < leave && enter > T(NEAREST) && enter < best.t) best = {enter, row, face};
}

// The point of the ray that is nearest to the centre is found first, for precision.
template <class T>
NUREC_FN void meet_ball(Solid<T> const& s, int row, Line<T> const& ray, Meeting<T>& best) {
    T const* const frame = &s.frame[0][0];
    Vec3<T> const scale = {1 / s.half[0], 1 / s.half[1], 1 / s.half[2]};
    Vec3<T> const d = times(scale, turned(frame, 4, ray.d));
    Vec3<T> const o = times(scale, turned(frame, 4, ray.o) + Vec3<T>{s.frame[0][3], s.frame[1][3], s.frame[2][3]});
    T const square = dot(d, d), middle = -dot(o, d) / square;
    Vec3<T> const nearest = o + middle * d;
    T const room = 1 - dot(nearest, nearest);
    if (room <= 0) return;
    T const t = middle - sqrt(room / square);
    if (t > T(NEAREST) && t < best.t) best = {t, row, 0};
}

template <class T>
NUREC_FN void meet_solid(Street<T> const& street, int row, Line<T> const& ray, Meeting<T>& best) {
    int const faces = street.kinds[row].faces;
    faces ? meet_hull(street.solids[row], faces, row, ray, best) : meet_ball(street.solids[row], row, ray, best);
}

// Metres to where the ray enters the box; infinite where it does not, or only beyond `limit`.
template <class T>
NUREC_FN T entry(Box<T> const& box, Vec3<T> o, Vec3<T> inverse, T limit) {
    T enter = 0, leave = limit;
    T const from[3] = {o.x, o.y, o.z}, by[3] = {inverse.x, inverse.y, inverse.z};
    for (int k = 0; k < 3; ++k) {
        T const a = (box.low[k] - from[k]) * by[k], b = (box.high[k] - from[k]) * by[k];
        enter = larger(enter, smaller(a, b)), leave = smaller(leave, larger(a, b));
    }
    return enter <= leave ? enter : T(INFINITY);
}

template <class T>
NUREC_FN T inverse_of(T x) {
    return 1 / (x > T(-1e-12) && x < T(1e-12) ? T(1e-12) : x);
}

// The solids of the world, nearer boxes first. `any`: the first solid found will do.
template <class T>
NUREC_FN void meet_world(Street<T> const& street, Line<T> const& ray, bool any, Meeting<T>& best) {
    if (!street.n_nodes) return;
    Vec3<T> const inverse = {inverse_of(ray.d.x), inverse_of(ray.d.y), inverse_of(ray.d.z)};
    int waiting[DEEPEST], n = 0, node = 0;
    T entries[DEEPEST];
    T at = entry(street.boxes[0], ray.o, inverse, best.t);
    while (true) {
        if (at < best.t) {
            Node const here = street.nodes[node];
            if (!here.count) {
                int near = node + 1, far = here.first;
                T first = entry(street.boxes[near], ray.o, inverse, best.t);
                T second = entry(street.boxes[far], ray.o, inverse, best.t);
                if (second < first) {
                    int const swapped = near;
                    near = far, far = swapped;
                    T const later = first;
                    first = second, second = later;
                }
                if (second < best.t) waiting[n] = far, entries[n] = second, ++n;
                node = near, at = first;
                continue;
            }
            for (int k = 0; k < here.count; ++k) meet_solid(street, street.order[here.first + k], ray, best);
            if (any && best.row >= 0) return;
        }
        if (!n) return;
        --n, node = waiting[n], at = entries[n];
    }
}

template <class T>
NUREC_FN Line<T> seen_from(Street<T> const& street, int64_t slot, int owner, Line<T> const& ray) {
    int64_t const at = slot * street.owners + owner;
    T const* const r = street.owner_rotations + 9 * at;
    return {turned_back(r, 3, ray.o - vec(street.owner_positions + 3 * at)), turned_back(r, 3, ray.d)};
}

// The nearest solid of a ray, or any but the ground.
template <class T>
NUREC_CALL Meeting<T> cast(Street<T> const& street, int64_t slot, Line<T> ray, bool any) {
    Meeting<T> best = {T(INFINITY), -1, 0};
    T const descent = -ray.d.z, ground = ray.o.z / larger(descent, T(1e-9));
    if (descent > T(1e-9) && ground > T(NEAREST) && ground < T(FARTHEST)) best = {ground, 0, 0};
    for (int k = 0; k + 1 < street.owners; ++k) {
        Line<T> const own = seen_from(street, slot, k, ray);
        T const along = dot(own.o, own.d), reach = street.reach[k];
        Vec3<T> const beside = own.o - along * own.d;
        if (dot(beside, beside) > reach * reach || -along - reach > best.t || reach < along) continue;
        for (int row = street.cars[k].begin; row < street.cars[k].end; ++row) meet_solid(street, row, own, best);
    }
    if (!(any && best.row >= 0)) meet_world(street, ray, any, best);
    return best;
}

}  // namespace nurec
