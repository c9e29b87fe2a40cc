// SPDX-License-Identifier: Apache-2.0
// Where points appear in a camera or a lidar that moves while it measures; nurec_lite/splat/views.py is the
// specification.
#pragma once

#include "vec.cuh"

namespace nurec {

template <class T>
struct Place {
    T u, v;   // pixels, or azimuth and elevation in radians
    T depth;  // camera: z; lidar: range; metres
};

template <class T>
NUREC_FN T clamp01(T a) {
    return smaller(larger(a, T(0)), T(1));
}

// a modulo b in [0, b), as torch.remainder.
template <class T>
NUREC_FN T positive_remainder(T a, T b) {
    return a - floor(a / b) * b;
}

// A vector of world axes in the sensor's frame, which turns and moves: linear between the view's start and its end.
template <class T>
struct Course {
    Vec3<T> start, change;

    NUREC_FN Vec3<T> at(T fraction) const { return start + fraction * change; }
};

// The sensor's frames at the start and at the end of a view, from world axes about its centre.
template <class T>
struct Motion {
    Mat3<T> R0, R1;
    Vec3<T> t0, t1;
    T seconds;  // from start to end

    // A point with velocity v, point and sensor both where they are at a fraction of the view: linear between the two
    // frames, which is off by angle^2 / 8 of the distance and enough for bounds.
    NUREC_FN Vec3<T> at(Vec3<T> p, Vec3<T> v, T fraction) const {
        Vec3<T> const moved = p + ((fraction - T(0.5)) * seconds) * v;
        Vec3<T> const a = R0 * moved + t0, b = R1 * moved + t1;
        return a + fraction * (b - a);
    }

    NUREC_FN Course<T> of_point(Vec3<T> p) const {
        Vec3<T> const a = R0 * p + t0;
        return {a, (R1 * p + t1) - a};
    }

    NUREC_FN Course<T> of_direction(Vec3<T> d) const {
        Vec3<T> const a = R0 * d;
        return {a, R1 * d - a};
    }
};

// `Motion::at` of one point at many fractions.
template <class T>
struct Moving {
    Course<T> place, drift;  // without its velocity, and the motion that the velocity adds over the view

    NUREC_FN Vec3<T> at(T fraction) const { return place.at(fraction) + (fraction - T(0.5)) * drift.at(fraction); }

    // Derivative of `at` by the fraction.
    NUREC_FN Vec3<T> rate(T fraction) const {
        return place.change + drift.at(fraction) + (fraction - T(0.5)) * drift.change;
    }
};

template <class T>
NUREC_FN Moving<T> moving(Motion<T> const& motion, Vec3<T> p, Vec3<T> v) {
    return {motion.of_point(p), motion.of_direction(motion.seconds * v)};
}

enum Shutter : int { GLOBAL = 0, TOP_TO_BOTTOM = 1, BOTTOM_TO_TOP = 2, LEFT_TO_RIGHT = 3, RIGHT_TO_LEFT = 4 };

template <class T>
struct CameraModel {
    T width, height, fx, fy, cx, cy;
    T k1, k2, p1, p2, k3;  // OpenCV's distortion, all zero without
    T shutter;             // of `Shutter`, as a number

    // Distortion of x / z and y / z: radial factor 1 + k1 r2 + k2 r4 + k3 r6 and tangential p1, p2 (OpenCV).
    NUREC_FN Vec2<T> distort(Vec2<T> a) const {
        T const x = a.x, y = a.y, r2 = x * x + y * y;
        T const radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3));
        T const dx = 2 * p1 * x * y + p2 * (r2 + 2 * x * x), dy = p1 * (r2 + 2 * y * y) + 2 * p2 * x * y;
        return {x * radial + dx, y * radial + dy};
    }

    // The Jacobian of that.
    NUREC_FN Sym2<T> stretch(Vec2<T> at) const {
        T const x = at.x, y = at.y, r2 = x * x + y * y;
        T const radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3)), slope = 2 * (k1 + r2 * (2 * k2 + r2 * 3 * k3));
        return {radial + slope * x * x + 2 * p1 * y + 6 * p2 * x, slope * x * y + 2 * p1 * x + 2 * p2 * y,
                radial + slope * y * y + 6 * p1 * y + 2 * p2 * x};
    }

    NUREC_FN bool bends() const { return k1 != 0 || k2 != 0 || k3 != 0 || p1 != 0 || p2 != 0; }

    // Newton's method; 10 rounds reach rounding wherever the lens model still grows with the radius.
    NUREC_FN Vec2<T> undistort(Vec2<T> seen) const {
        Vec2<T> p = seen;
        for (int round = 0; round < 10; ++round) {
            Sym2<T> const J = stretch(p);
            Vec2<T> const now = distort(p);
            T const u = seen.x - now.x, v = seen.y - now.y, inverse = 1 / (J.xx * J.yy - J.xy * J.xy);
            p = {p.x + (J.yy * u - J.xy * v) * inverse, p.y + (J.xx * v - J.xy * u) * inverse};
        }
        return p;
    }

    NUREC_FN Place<T> project(Vec3<T> p) const {
        T const z = fabs(p.z) < T(1e-6) ? T(1e-6) : p.z;
        Vec2<T> const seen = distort({p.x / z, p.y / z});
        return {seen.x * fx + cx, seen.y * fy + cy, p.z};
    }

    NUREC_FN bool reads_rows() const { return shutter == TOP_TO_BOTTOM || shutter == BOTTOM_TO_TOP; }
    NUREC_FN bool reads_on() const { return shutter == TOP_TO_BOTTOM || shutter == LEFT_TO_RIGHT; }
    NUREC_FN T steps() const { return larger((reads_rows() ? height : width) - 1, T(1)); }  // from first to last

    // 0 when the first row's (or column's) centre is read, 1 at the last one's.
    NUREC_FN T fraction(T u, T v) const {
        if (shutter == GLOBAL) return T(0.5);
        T const f = ((reads_rows() ? v : u) - T(0.5)) / steps();
        return reads_on() ? f : 1 - f;
    }

    // Derivative of that from pixel to pixel.
    NUREC_FN Vec2<T> reading() const {
        if (shutter == GLOBAL) return {0, 0};
        T const each = (reads_on() ? 1 : -1) / steps();
        return reads_rows() ? Vec2<T>{0, each} : Vec2<T>{each, 0};
    }

    // Each point at the time when its own row is read: three rounds of fixed-point iteration.
    NUREC_FN Place<T> appear(Motion<T> const& motion, Vec3<T> p, Vec3<T> v) const {
        T f = T(0.5);
        Place<T> place = project(motion.at(p, v, f));
        for (int round = 1; round < 3 && shutter != GLOBAL; ++round) {
            f = clamp01(fraction(place.u, place.v));
            place = project(motion.at(p, v, f));
        }
        return place;
    }
};

constexpr double PI = 3.14159265358979323846;

template <class T>
NUREC_FN T wrap_angle(T a) {  // to [-pi, pi)
    return positive_remainder(a + T(PI), T(2 * PI)) - T(PI);
}

template <class T>
NUREC_FN Place<T> spherical(Vec3<T> p) {
    T const flat = sqrt(p.x * p.x + p.y * p.y);
    return {atan2(p.y, p.x), atan2(p.z, flat), sqrt(dot(p, p))};
}

// atan2 for bounds, which ask thirty times a Gaussian.
template <class T>
NUREC_FN T angle_of(T y, T x) {
    return atan2(y, x);
}

// To 2e-7, without branches: of the smaller by the larger number a polynomial with the least greatest error on [0, 1],
// found by the exchange algorithm of Remez.
NUREC_FN float angle_of(float y, float x) {
    float const a = fabsf(x), b = fabsf(y);
    bool const steep = a < b;
    float const t = (steep ? a : b) / ((steep ? b : a) + 1e-37f), t2 = t * t;
    float sum = -0.00405456721f;
    sum = sum * t2 + 0.0218629579f;
    sum = sum * t2 - 0.0559123268f;
    sum = sum * t2 + 0.0964219733f;
    sum = sum * t2 - 0.139086295f;
    sum = sum * t2 + 0.199465657f;
    sum = sum * t2 - 0.333298608f;
    sum = sum * t2 + 0.999999336f;
    float const first = sum * t, half = steep ? float(PI / 2) - first : first;
    return copysignf(x < 0 ? float(PI) - half : half, y);
}

// About the vertical axis, from a to b; in [-pi, pi].
template <class T>
NUREC_FN T turn_between(Vec3<T> a, Vec3<T> b) {
    return angle_of(a.x * b.y - a.y * b.x, a.x * b.x + a.y * b.y);
}

template <class T>
NUREC_FN T elevation_of(Vec3<T> p) {
    return angle_of(p.z, T(sqrt(p.x * p.x + p.y * p.y)));
}

template <class T>
struct LidarModel {
    // A lidar that does not spin has the rate 2^-100 and the start -2^99: then every azimuth is at half of the sweep.
    T spin_rate;      // revolutions a radian of azimuth, negative when it turns clockwise
    T azimuth_start;  // radians, where a revolution begins

    NUREC_FN bool spins() const { return azimuth_start > T(-1e20); }

    NUREC_FN T fraction(T azimuth) const { return positive_remainder((azimuth - azimuth_start) * spin_rate, T(1)); }

    // When the lidar looks at a point.
    NUREC_FN T lead(Moving<T> const& point) const {
        T f = T(0.5);
        for (int round = 0; round < 3; ++round) {
            Vec3<T> const p = point.at(f);
            f = fraction(angle_of(p.y, p.x));
        }
        return f;
    }

    // A mean, then mean + axes and mean - axes, each at the time when the lidar looks that way; azimuths are
    // unwrapped about the mean's. Returns where the mean is then.
    NUREC_FN Vec3<T> appear(Motion<T> const& motion, Moving<T> const& mean, Vec3<T> const (&axes)[3],
                            Place<T> (&places)[7]) const {
        T const first = lead(mean);
        Vec3<T> const middle = mean.at(first);
        places[0] = {angle_of(middle.y, middle.x), elevation_of(middle), T(sqrt(dot(middle, middle)))};
#pragma unroll
        for (int k = 0; k < 3; ++k) {
            Course<T> const axis = motion.of_direction(axes[k]);
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                T const sign = side ? T(-1) : T(1);
                T const seen = turn_between(middle, middle + sign * axis.at(first));
                T const f = first + seen * spin_rate;
                Vec3<T> const p = mean.at(f) + sign * axis.at(f);
                T const turn = turn_between(middle, p);
                places[1 + k + 3 * side] = {places[0].u + turn, elevation_of(p), T(sqrt(dot(p, p)))};
            }
        }
        return middle;
    }
};

// All numbers that bounds need of a view.
template <class T>
struct View {
    Motion<T> motion;
    Vec3<T> forward;  // world axis that a camera looks along in the middle of the view
    T travel;         // metres between the sensor's positions at start and end
    T turning;        // radians between its axes there
    T is_camera;      // 1 or 0
    CameraModel<T> camera;
    LidarModel<T> lidar;
};

}  // namespace nurec
