// SPDX-License-Identifier: Apache-2.0
// One pixel of a camera, and one ray of a lidar. nurec_lite/capture/simulate/drive.py is the specification.
#pragma once

#include "paint.cuh"

namespace nurec {

template <class T>
NUREC_FN CastRay<T> ray_from(Street<T> const& street, int64_t slot, double const* direction) {
    double const* const p = street.positions + 3 * slot;
    Vec3<double> const d = rotate(street.rotations + 9 * slot, 3, vec(direction));
    return {{T(p[0]), T(p[1]), T(p[2])}, {T(d.x), T(d.y), T(d.z)}};
}

template <class T>
NUREC_FN Vec3<T> radiance(Street<T> const& street, int64_t slot, CastRay<T> const& ray) {  // linear, 0 to about 1
    Hit<T> const hit = cast(street, slot, ray, false);
    if (hit.row < 0) return sky_of(ray.d, street.seed);
    Surface<T> const s = surface(street, slot, ray, hit);
    Vec3<T> const sun = towards_sun<T>();
    T sunlit = 0;
    if (dot(s.normal, sun) > 0) sunlit = cast(street, slot, {s.point + T(0.02) * s.normal, sun}, true).row < 0;
    return lit(s, albedo(s, street.seed), sunlit, street.seed);
}

NUREC_FN uint8_t developed(float light, Tone const& tone, int channel, int64_t pixel) {
    float const encoded = powf(light, 1 / 2.2f) * tone.gain[channel] + tone.offset[channel];
    float const noise = float(normal_of_hash(absorb(tone.prefix, uint32_t(3 * pixel + channel))));
    return uint8_t(rintf(clamped(encoded + tone.noise * noise) * 255));
}

NUREC_FN void simulate_pixel(Street<float> const& street, PixelParams const& p, int64_t i) {
    Vec3<float> sum = {};
    for (int64_t k = 0; k < p.samples; ++k) {  // all rays of a pixel are cast at the pixel's own time
        CastRay<float> const ray = ray_from(street, p.slots[i], p.directions + 3 * (i * p.samples + k));
        Vec3<float> const light = radiance(street, p.slots[i], ray);
        sum = sum + Vec3<float>{clamped(light.x), clamped(light.y), clamped(light.z)};
    }
    float const light[3] = {sum.x / p.samples, sum.y / p.samples, sum.z / p.samples};
    for (int c = 0; c < 3; ++c) p.pixels[3 * i + c] = developed(light[c], *p.tone, c, p.first + i);
}

// Exact range, and intensity: reflectivity times cosine, less with range and on glass.
NUREC_FN void simulate_echo(Street<double> const& street, EchoParams const& p, int64_t i) {
    CastRay<double> const ray = ray_from(street, p.slots[i], p.directions + 3 * i);
    Hit<double> const hit = cast(street, p.slots[i], ray, false);
    p.echoes[2 * i] = hit.t, p.echoes[2 * i + 1] = 0;
    if (hit.row < 0) return;
    Surface<double> const s = surface(street, p.slots[i], ray, hit);
    Vec3<double> const colour = albedo(s, street.seed);
    double const reflectivity = sqrt(clamped((colour.x + colour.y + colour.z) / 3));
    double const glass = s.material == CABIN ? cabin_glass(s) : 0;
    p.echoes[2 * i + 1] = clamped(reflectivity * s.cosine * exp(-s.distance / 90) * (1 - 0.995 * glass));
}

}  // namespace nurec
