// SPDX-License-Identifier: Apache-2.0
// Ray casting against the street's solids, through a tree of boxes (BVH). nurec_lite/capture/simulate/cast.py is the
// specification.
#pragma once

#include "noise.cuh"
#include "street.h"

namespace nurec {

constexpr double MIN_RANGE_M = 0.05, MAX_GROUND_M = 2000;  // a ray hits nothing nearer, and ground beyond is sky
constexpr int MAX_TREE_DEPTH = 32;                         // levels; each halves the solids

#ifdef __CUDACC__
#define NUREC_CALL __host__ __device__ __noinline__
#else
#define NUREC_CALL inline
#endif

template <class T>
struct CastRay {
    Vec3<T> o, d;  // origin and unit direction
};

template <class T>
struct Hit {
    T t;       // metres
    int row;   // of the solid; -1: none
    int face;  // of a hull
};

template <class T>
NUREC_FN Vec3<T> vec(T const* v) {
    return {v[0], v[1], v[2]};
}

template <class T>
NUREC_FN Vec3<T> rotate(T const* r, int stride, Vec3<T> v) {  // rows of a matrix `stride` numbers apart
    return {dot(vec(r), v), dot(vec(r + stride), v), dot(vec(r + 2 * stride), v)};
}

template <class T>
NUREC_FN Vec3<T> rotate_back(T const* r, int stride, Vec3<T> v) {
    return v.x * vec(r) + (v.y * vec(r + stride) + v.z * vec(r + 2 * stride));
}

template <class T>
NUREC_FN Vec3<T> multiply(Vec3<T> a, Vec3<T> b) {
    return {a.x * b.x, a.y * b.y, a.z * b.z};
}

// Slab test: the ray is inside from the last plane that it enters to the first that it leaves (Kay, Kajiya 1986).
template <class T>
NUREC_FN void intersect_hull(Solid<T> const& s, int faces, int row, CastRay<T> const& ray, Hit<T>& best) {
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
    if (enter < leave && enter > T(MIN_RANGE_M) && enter < best.t) best = {enter, row, face};
}

// Computes the ray's nearest point to the centre first, for precision.
template <class T>
NUREC_FN void intersect_ellipsoid(Solid<T> const& s, int row, CastRay<T> const& ray, Hit<T>& best) {
    T const* const frame = &s.frame[0][0];
    Vec3<T> const scale = {1 / s.half[0], 1 / s.half[1], 1 / s.half[2]};
    Vec3<T> const d = multiply(scale, rotate(frame, 4, ray.d));
    Vec3<T> const o = multiply(scale, rotate(frame, 4, ray.o) + Vec3<T>{s.frame[0][3], s.frame[1][3], s.frame[2][3]});
    T const square = dot(d, d), middle = -dot(o, d) / square;
    Vec3<T> const nearest = o + middle * d;
    T const discriminant = 1 - dot(nearest, nearest);
    if (discriminant <= 0) return;
    T const t = middle - sqrt(discriminant / square);
    if (t > T(MIN_RANGE_M) && t < best.t) best = {t, row, 0};
}

template <class T>
NUREC_FN void intersect_solid(Street<T> const& street, int row, CastRay<T> const& ray, Hit<T>& best) {
    int const faces = street.kinds[row].faces;
    faces ? intersect_hull(street.solids[row], faces, row, ray, best)
          : intersect_ellipsoid(street.solids[row], row, ray, best);
}

// Metres to the ray's entry into the box; infinite if it misses the box, or enters it beyond `limit`.
template <class T>
NUREC_FN T box_entry(Box<T> const& box, Vec3<T> o, Vec3<T> inverse, T limit) {
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

// Intersects the static solids, nearer boxes first. `any`: stops at the first hit.
template <class T>
NUREC_FN void traverse_tree(Street<T> const& street, CastRay<T> const& ray, bool any, Hit<T>& best) {
    if (!street.n_nodes) return;
    Vec3<T> const inverse = {inverse_of(ray.d.x), inverse_of(ray.d.y), inverse_of(ray.d.z)};
    int stack[MAX_TREE_DEPTH], n = 0, node = 0;
    T entries[MAX_TREE_DEPTH];
    T at = box_entry(street.boxes[0], ray.o, inverse, best.t);
    while (true) {
        if (at < best.t) {
            Node const here = street.nodes[node];
            if (!here.count) {
                int near = node + 1, far = here.first;
                T first = box_entry(street.boxes[near], ray.o, inverse, best.t);
                T second = box_entry(street.boxes[far], ray.o, inverse, best.t);
                if (second < first) {
                    int const swapped = near;
                    near = far, far = swapped;
                    T const later = first;
                    first = second, second = later;
                }
                if (second < best.t) stack[n] = far, entries[n] = second, ++n;
                node = near, at = first;
                continue;
            }
            for (int k = 0; k < here.count; ++k) intersect_solid(street, street.order[here.first + k], ray, best);
            if (any && best.row >= 0) return;
        }
        if (!n) return;
        --n, node = stack[n], at = entries[n];
    }
}

template <class T>
NUREC_FN CastRay<T> in_owner_frame(Street<T> const& street, int64_t slot, int owner, CastRay<T> const& ray) {
    int64_t const at = slot * street.owners + owner;
    T const* const r = street.owner_rotations + 9 * at;
    return {rotate_back(r, 3, ray.o - vec(street.owner_positions + 3 * at)), rotate_back(r, 3, ray.d)};
}

// Returns the nearest hit of a ray; with `any`, some hit, as for a shadow ray.
template <class T>
NUREC_CALL Hit<T> cast(Street<T> const& street, int64_t slot, CastRay<T> ray, bool any) {
    Hit<T> best = {T(INFINITY), -1, 0};
    T const descent = -ray.d.z, ground = ray.o.z / larger(descent, T(1e-9));
    if (descent > T(1e-9) && ground > T(MIN_RANGE_M) && ground < T(MAX_GROUND_M)) best = {ground, 0, 0};
    for (int k = 0; k + 1 < street.owners; ++k) {
        CastRay<T> const own = in_owner_frame(street, slot, k, ray);
        T const along = dot(own.o, own.d), reach = street.reach[k];
        Vec3<T> const offset = own.o - along * own.d;  // from the car's origin to the ray
        if (dot(offset, offset) > reach * reach || -along - reach > best.t || reach < along) continue;
        for (int row = street.cars[k].begin; row < street.cars[k].end; ++row) intersect_solid(street, row, own, best);
    }
    if (!(any && best.row >= 0)) traverse_tree(street, ray, any, best);
    return best;
}

}  // namespace nurec
