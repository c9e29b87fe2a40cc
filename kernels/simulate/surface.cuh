// SPDX-License-Identifier: Apache-2.0
// The surface at a ray's hit: Surface of cast.py, for one ray.
#pragma once

#include "cast.cuh"

namespace nurec {

template <class T>
struct Surface {
    T distance;                                    // metres
    Vec3<T> direction, point, normal;              // of the ray and the hit, world
    Vec3<T> local, local_normal, local_direction;  // own frame of the solid, metres from its centre
    Vec3<T> half, colour, trim;                    // of the solid
    int row, material;
    T spread, cosine;  // radians between neighbouring rays; cosine of the angle of incidence

    // Metres that a ray's cone covers along a unit tangent; both vectors are in the same frame.
    NUREC_FN T footprint(Vec3<T> tangent, Vec3<T> by) const {
        T const c2 = cosine * cosine, along = dot(by, tangent), share = along * along / larger(1 - c2, T(1e-4));
        return distance * spread * sqrt(1 + smaller(share, T(1)) * (1 / c2 - 1));
    }
};

template <class T>
NUREC_FN Vec3<T> normalized(Vec3<T> v) {
    return (1 / larger(T(sqrt(dot(v, v))), T(1e-12))) * v;
}

template <class T>
NUREC_FN Vec3<T> normal_in_owner_frame(Solid<T> const& s, bool ball, int face, Vec3<T> own) {
    if (!ball) return vec(s.planes[face]);
    Vec3<T> const h = vec(s.half);
    return rotate_back(&s.frame[0][0], 4,
                       normalized(Vec3<T>{own.x / (h.x * h.x), own.y / (h.y * h.y), own.z / (h.z * h.z)}));
}

template <class T>
NUREC_FN Surface<T> surface(Street<T> const& street, int64_t slot, CastRay<T> const& ray, Hit<T> const& hit) {
    SolidKind const kind = street.kinds[hit.row];
    Solid<T> const& s = street.solids[hit.row];
    bool const moves = kind.owner + 1 < street.owners;
    CastRay<T> const line = moves ? in_owner_frame(street, slot, kind.owner, ray) : ray;
    Vec3<T> const at = line.o + hit.t * line.d;
    T const* const frame = &s.frame[0][0];
    Vec3<T> const own = rotate(frame, 4, at) + Vec3<T>{s.frame[0][3], s.frame[1][3], s.frame[2][3]};
    Vec3<T> const n = normal_in_owner_frame(s, !kind.faces, hit.face, own);
    T const* const r = street.owner_rotations + 9 * (slot * street.owners + kind.owner);
    Vec3<T> const normal = moves ? rotate(r, 3, n) : n;
    T const cosine = smaller(larger(-dot(normal, ray.d), T(1e-3)), T(1));
    return {hit.t,
            ray.d,
            ray.o + hit.t * ray.d,
            normal,
            own,
            rotate(frame, 4, n),
            rotate(frame, 4, line.d),
            vec(s.half),
            vec(s.colour),
            vec(s.trim),
            hit.row,
            kind.material,
            street.spread,
            cosine};
}

}  // namespace nurec
