// SPDX-License-Identifier: Apache-2.0
// Colours of street and sky in linear light, for one ray. nurec_lite/capture/simulate/paint.py is the specification.
#pragma once

#include "surface.cuh"

namespace nurec {

// Street and cars, in metres: world.py and solids.py.
constexpr double KERB = 5.5, PAVEMENT = 8.3, FIRST_CROSSING = 27, CROSSING_EVERY = 68, CROSSING_HALF = 3.6;
constexpr double BEND = 5, BEND_WAVE = 2 * 3.14159265358979323846 / 260;
constexpr double SIDE_INSET = 0.16, WHEEL_RADIUS = 0.33, CLEARANCE = 0.17, AXLE = 0.31;

enum Material { GROUND, WALL, ROOF, LEAVES, BODY, CABIN, WHEEL, PLAIN };

template <class T>
NUREC_FN Vec3<T> rgb(double r, double g, double b) {
    return {T(r), T(g), T(b)};
}

template <class T>
NUREC_FN Vec3<T> mix(Vec3<T> a, Vec3<T> b, T share) {
    return a + share * (b - a);
}

template <class T>
NUREC_FN T modulo(T x, double period) {  // into [0, period)
    return x - T(period) * floor(x / T(period));
}

template <class T>
NUREC_FN Vec3<T> towards_sun() {
    return normalized(rgb<T>(-0.42, -0.50, 0.76));
}

NUREC_FN uint32_t hash_of(uint32_t seed, uint32_t key) {
    return absorb(absorb(0, seed), key);
}

// Visible share of speckles of a size: 0 where a ray's footprint is as large.
template <class T>
NUREC_FN T grain_shows(Surface<T> const& s, double size) {
    return clamped(1 - s.distance * s.spread / s.cosine / T(size));
}

template <class T>
NUREC_FN T grain(Surface<T> const& s, T x, T y, double size, double amount, uint32_t h) {
    T const shows = grain_shows(s, size);
    return shows > 0 ? 1 + T(amount) * shows * (value_noise(h, x / T(size), y / T(size)) - T(0.5)) : T(1);
}

// Asphalt with markings, kerb, pavement, grass; side streets cut through all of it.
template <class T>
NUREC_FN Vec3<T> paint_ground(Surface<T> const& s, uint32_t seed) {
    T const x = s.point.x, y = s.point.y;
    T const angle = atan(T(BEND * BEND_WAVE) * sin(T(BEND_WAVE) * x)), c = cos(angle), a = sin(angle);
    T const across = (y - T(BEND) * (1 - cos(T(BEND_WAVE) * x))) * c;
    T const foot_x = s.footprint({c, a, T(0)}, s.direction), foot_y = s.footprint({-a, c, T(0)}, s.direction);
    T const from = modulo(x - T(FIRST_CROSSING) + T(CROSSING_EVERY / 2), CROSSING_EVERY) - T(CROSSING_EVERY / 2);
    T const road = band(across, -KERB, KERB, foot_y);
    T const paved = larger(road, band(from, -CROSSING_HALF, CROSSING_HALF, foot_x));
    Vec3<T> colour = {};
    if (paved < 1) {
        Vec3<T> const paving =
            (T(0.85) + T(0.3) * value_noise(hash_of(seed, 2), x / T(1.5), y / T(1.5))) * rgb<T>(0.34, 0.32, 0.29);
        Vec3<T> const grass =
            (T(0.6) + T(0.8) * value_noise(hash_of(seed, 3), x / T(0.9), y / T(0.9))) * rgb<T>(0.13, 0.21, 0.05);
        colour = mix(grass, paving, band(across, -PAVEMENT, PAVEMENT, foot_y));
        colour = mix(colour, rgb<T>(0.50, 0.48, 0.45), band(across, -KERB - 0.22, KERB + 0.22, foot_y));
    }
    if (paved > 0) {
        T const patches = value_noise(hash_of(seed, 1), x / T(2.5), y / T(2.5));
        T const light = (T(0.75) + T(0.5) * patches) * grain(s, x, y, 0.03, 0.7, hash_of(seed, 13));
        colour = mix(colour, light * rgb<T>(0.085, 0.087, 0.095), paved);
    }
    T const plain = 1 - band(from, -8.0, CROSSING_HALF, foot_x);
    T const dashes = pulses(x, T(6), T(0.5), foot_x) * band(across, -0.10, 0.10, foot_y) * plain;
    T const edges = band(across < 0 ? -across : across, 3.28, 3.42, foot_y) * plain;
    T const zebra = band(from, -7.2, -4.4, foot_x) * pulses(across, T(1.1), T(0.5), foot_y) * road;
    return mix(colour, rgb<T>(0.72, 0.72, 0.68), smaller(dashes + edges + zebra, T(1)));
}

// Rows of windows in light frames; a door in front.
template <class T>
NUREC_FN Vec3<T> paint_wall(Surface<T> const& s, uint32_t seed) {
    Vec3<T> const n = s.local_normal;
    bool const gable = n.x * n.x > n.y * n.y;
    T const half = gable ? s.half.y : s.half.x, u = gable ? s.local.y : s.local.x, v = s.local.z + s.half.z;
    T const foot_u = s.footprint({T(!gable), T(gable), T(0)}, s.local_direction);
    T const foot_v = s.footprint({T(0), T(0), T(1)}, s.local_direction);
    T const period = 2 * half / larger(floor((2 * half - T(0.8)) / T(2.7)), T(1));
    T const windows = pulses(v, T(3), T(0.5), foot_v) * pulses(u + half, period, T(1.25) / period, foot_u);
    T const framed = pulses(v, T(3), T(0.6), foot_v) * pulses(u + half, period, T(1.6) / period, foot_u);
    T const front = n.y < T(-0.5);
    T const doorway = band(u, -0.85, 0.85, foot_u) * band(v, 0.0, 2.55, foot_v) * front;
    T const door = band(u, -0.60, 0.60, foot_u) * band(v, 0.0, 2.30, foot_v) * front;
    uint32_t const own = hash_of(seed, uint32_t(s.row)), column = uint32_t(int64_t(floor((u + half) / period)));
    T const chance = T(uniform_of_hash<double>(absorb(absorb(own, column), uint32_t(int64_t(floor(v / 3))))));
    T const bright = (T(0.25) + T(0.75) * modulo(v / 3, 1)) * (T(0.4) + T(0.6) * chance);
    Vec3<T> const glass = bright * rgb<T>(0.10, 0.15, 0.22) + T(chance > T(0.8)) * rgb<T>(0.20, 0.17, 0.12);
    T const stains = T(0.88) + T(0.24) * value_noise(own, u / T(1.7), v / T(1.7));
    T const courses = T(0.85) + T(0.15) * pulses(v, T(0.3), T(0.9), 2 * foot_v);
    T const light = stains * grain(s, u, v, 0.05, 0.25, hash_of(seed, 14)) * courses;
    Vec3<T> wall = mix(light * s.colour, T(0.5) * s.colour, band(v, -1.0, 0.55, foot_v));
    wall = mix(wall, s.trim, clamped(framed * (1 - doorway) + doorway));
    wall = mix(wall, glass, windows * (1 - doorway));
    wall = mix(wall, T(0.45) * Vec3<T>{s.colour.z, s.colour.x, s.colour.y}, door);
    return (T(0.8) + T(0.2) * smaller(v / T(2.5), T(1))) * wall;
}

template <class T>
NUREC_FN Vec3<T> paint_roof(Surface<T> const& s, uint32_t seed) {
    if (s.local_normal.z < T(0.2) && s.local_normal.z > T(-0.2)) return s.trim;
    Vec3<T> const tilt = normalized(Vec3<T>{T(0), -s.local_normal.z, s.local_normal.y});
    T const courses = pulses(s.local.z, T(0.45), T(0.5), s.footprint(tilt, s.local_direction));
    T const tiles = value_noise(hash_of(seed, uint32_t(s.row)), (1 / T(1.2)) * s.local);
    return (T(0.8) + T(0.2) * courses + T(0.25) * tiles) * s.colour;
}

// Normals of leaves are ruffled, so that a crown does not look like a balloon.
template <class T>
NUREC_FN Vec3<T> foliage_normal(Surface<T> const& s, uint32_t seed) {
    Vec3<T> const p = (1 / T(0.4)) * s.point, half = rgb<T>(0.5, 0.5, 0.5);
    Vec3<T> const ruffle = {value_noise(hash_of(seed, 10), p), value_noise(hash_of(seed, 11), p),
                            value_noise(hash_of(seed, 12), p)};
    return normalized(s.normal + T(1.3) * (ruffle - half));
}

// Light and dark clumps, finer ones where the footprint is small enough; darker below.
template <class T>
NUREC_FN Vec3<T> paint_leaves(Surface<T> const& s, uint32_t seed) {
    T const fine = clamped(1 - s.distance * s.spread / T(0.15)), shows = grain_shows(s, 0.06);
    T clumps = value_noise(hash_of(seed, 4), (1 / T(0.55)) * s.point);
    if (fine > 0) clumps += fine * (value_noise(hash_of(seed, 5), (1 / T(0.22)) * s.point) - T(0.5));
    T const height = smaller(larger(s.local.z / s.half.z, T(-1)), T(1));
    T shade = larger(T(0.35) + T(1.25) * clumps, T(0.15)) * (T(0.85) + T(0.2) * height);
    T const tint = T(0.35) * (value_noise(hash_of(seed, 6), (1 / T(1.6)) * s.point) - T(0.5));
    if (shows > 0) shade *= 1 + T(1.2) * shows * (value_noise(hash_of(seed, 15), (1 / T(0.06)) * s.point) - T(0.5));
    return shade * multiply(s.colour, rgb<T>(1, 1, 1) + tint * rgb<T>(1.0, 0.2, -0.5));
}

// Paint over dark sills, with lamps and number plates at the ends.
template <class T>
NUREC_FN Vec3<T> paint_body(Surface<T> const& s, uint32_t) {
    T const x = s.local.x / s.half.x, y = s.local.y / s.half.y, z = s.local.z / s.half.z;
    T const foot = s.distance * s.spread / s.half.z, beside = y < 0 ? -y : y;
    T const to_axle = (s.local.x < 0 ? -s.local.x : s.local.x) - T(2 * AXLE) * s.half.x;
    T const above = s.local.z + s.half.z + T(CLEARANCE - WHEEL_RADIUS);
    T const hub = sqrt(to_axle * to_axle + above * above);
    T const dark = larger(band(z, -2.0, -0.62, foot), band(hub, -1.0, WHEEL_RADIUS + 0.06, s.distance * s.spread));
    Vec3<T> colour = mix((T(0.88) + T(0.12) * z) * s.colour, rgb<T>(0.03, 0.03, 0.03), dark);
    if (s.local_normal.x * s.local_normal.x <= T(0.8 * 0.8)) return colour;
    if (x > 0) colour = mix(colour, rgb<T>(0.02, 0.02, 0.02), band(z, -0.05, 0.35, foot) * band(y, -0.45, 0.45, foot));
    colour = mix(colour, rgb<T>(0.75, 0.75, 0.70), band(z, -0.42, -0.12, foot) * band(y, -0.28, 0.28, foot));
    Vec3<T> const lamp = x > 0 ? rgb<T>(0.85, 0.85, 0.80) : rgb<T>(0.55, 0.02, 0.02);
    return mix(colour, lamp, band(z, -0.05, 0.48, foot) * band(beside, 0.58, 0.93, foot));
}

// Share of the footprint that is window glass: all around, below the roof, between pillars parallel to the cabin's
// sides.
template <class T>
NUREC_FN T cabin_glass(Surface<T> const& s) {
    Vec3<T> const n = s.local_normal;
    if (n.z > T(0.9)) return 0;
    T const foot = s.distance * s.spread, up = (s.local.z / s.half.z + 1) / 2;  // 0 at the foot, 1 at the roof
    T const rear = s.trim.x * up - s.half.x, front = s.half.x - s.trim.y * up, width = s.half.y - T(SIDE_INSET) * up;
    bool const is_side = n.y * n.y > n.x * n.x;
    T const side = band(s.local.x, rear + T(0.10), front - T(0.08), foot) * (1 - band(s.local.x, -0.06, 0.06, foot));
    T const ends = band(s.local.y, T(0.07) - width, width - T(0.07), foot);
    return (is_side ? side : ends) * band(s.local.z, T(0.04) - s.half.z, s.half.z - T(0.07), foot);
}

template <class T>
NUREC_FN Vec3<T> paint_cabin(Surface<T> const& s, uint32_t) {
    T const up = (s.local.z / s.half.z + 1) / 2;
    return mix(s.colour, (T(0.5) + T(1.2) * up) * rgb<T>(0.035, 0.05, 0.065), cabin_glass(s));
}

template <class T>
NUREC_FN Vec3<T> paint_wheel(Surface<T> const& s, uint32_t) {
    T const radius = sqrt(s.local.x * s.local.x + s.local.z * s.local.z);
    return mix(s.colour, s.trim, band(radius, -1.0, 0.6 * WHEEL_RADIUS, s.distance * s.spread));
}

template <class T>
NUREC_CALL Vec3<T> albedo(Surface<T> const& s, uint32_t seed) {
    switch (s.material) {
        case GROUND:
            return paint_ground(s, seed);
        case WALL:
            return paint_wall(s, seed);
        case ROOF:
            return paint_roof(s, seed);
        case LEAVES:
            return paint_leaves(s, seed);
        case BODY:
            return paint_body(s, seed);
        case CABIN:
            return paint_cabin(s, seed);
        case WHEEL:
            return paint_wheel(s, seed);
        default:
            return s.colour;
    }
}

// Lambert's law for the sun, a sky that is brighter above, light through leaves, and haze with distance. sunlit: 1
// in sunlight, 0 in shadow.
template <class T>
NUREC_CALL Vec3<T> lit(Surface<T> const& s, Vec3<T> colour, T sunlit, uint32_t seed) {
    Vec3<T> const sun = towards_sun<T>();
    T facing = larger(dot(s.normal, sun), T(0));
    if (s.material == LEAVES) {
        facing = larger(T(0.25) + T(0.75) * dot(foliage_normal(s, seed), sun), T(0));
        sunlit = T(0.45) + T(0.55) * sunlit;  // some light comes through
    }
    Vec3<T> const direct = (facing * sunlit) * rgb<T>(1.75, 1.62, 1.40);
    Vec3<T> const light = direct + (T(0.65) + T(0.35) * s.normal.z) * rgb<T>(0.30, 0.36, 0.46);
    T const thick = s.distance / 260;
    return mix(multiply(colour, light), rgb<T>(0.66, 0.76, 0.88), 1 - exp(-thick * thick));
}

// Pale at the horizon, blue above, with soft clouds and a glow about the sun.
template <class T>
NUREC_CALL Vec3<T> sky_of(Vec3<T> d, uint32_t seed) {
    T const up = larger(d.z, T(0)), x = d.x / (up + T(0.25)), y = d.y / (up + T(0.25));
    Vec3<T> colour = mix(rgb<T>(0.66, 0.76, 0.88), rgb<T>(0.24, 0.46, 0.86), 1 - exp(-3 * up));
    T const wide = value_noise(hash_of(seed, 7), T(1.6) * x, T(1.6) * y);
    T const billows = T(0.65) * wide + T(0.35) * value_noise(hash_of(seed, 8), T(3.7) * x, T(3.7) * y);
    T const cloud = clamped((billows - T(0.45)) / T(0.3)) * smaller(up / T(0.12), T(1));
    colour = mix(colour, rgb<T>(0.96, 0.97, 0.98), T(0.85) * cloud * cloud * (3 - 2 * cloud));
    T const angle = acos(smaller(larger(dot(d, towards_sun<T>()), T(-1)), T(1))) / T(0.10471975511965977);  // 6 degrees
    return colour + exp(-angle * angle) * rgb<T>(1.0, 0.95, 0.8);
}

}  // namespace nurec
