// SPDX-License-Identifier: Apache-2.0
// The loss of R lidar rays and its gradient. Pointers are those of the driver's device.
#pragma once

#include "../common/device.h"
#include "../math/lidar_loss.cuh"
#include "../math/ssim.cuh"

namespace nurec {

// Rays as rendered and as measured.
struct LidarRays {
    int64_t n;                   // R
    float const* distance;       // [R] metres; of rays with targets, the range residual
    float const* features;       // [R, 2] intensity, and probability that the surface returns nothing
    float const* transmittance;  // [R] light that passes through never returns
    float const* ranges;         // [R] metres
    float const* intensities;    // [R]
    bool const* returned;        // [R] others have neither range nor intensity
    bool const* counted;         // [R] the ray's drop counts; null: all
    bool aimed;
};

constexpr int SUMS = 5;  // errors of range, intensity and drop; numbers of rays that returned, and of rays that count

struct LidarTerms {
    float *range, *intensity, *drop;  // [] each
    float* counts;                    // [2] rays that returned and rays that count, at least 1
};

// Gradients of the terms, null: 0; and those that they make.
struct LidarGrads {
    float const* counts;                    // [2] as above
    float const *range, *intensity, *drop;  // [] each
    float* d_distance;                      // [R]
    float* d_features;                      // [R, 2]
    float* d_transmittance;                 // [R]
};

NUREC_FN float drop_of(LidarRays const& in, int64_t i) {
    return in.features[2 * i + 1] + in.transmittance[i];
}

NUREC_FN bool counts(LidarRays const& in, int64_t i) {
    return !in.counted || in.counted[i];
}

template <class T>
NUREC_FN void add_ray(LidarRays const& in, int64_t i, T (&sums)[SUMS]) {
    bool const returned = in.returned[i];
    if (returned) {
        sums[0] += in.aimed ? in.distance[i] : fabs(in.distance[i] - in.ranges[i]);
        sums[1] += fabs(in.features[2 * i] - in.intensities[i]);
        sums[3] += 1;
    }
    if (counts(in, i)) sums[2] += drop_cross_entropy(drop_of(in, i), returned), sums[4] += 1;
}

// Means of no rays are 0.
NUREC_FN void means_of(double const (&sums)[SUMS], LidarTerms const& out) {
    double const returned = sums[3] > 1 ? sums[3] : 1, counted = sums[4] > 1 ? sums[4] : 1;
    *out.range = float(sums[0] / returned), *out.intensity = float(sums[1] / returned);
    *out.drop = float(sums[2] / counted);
    out.counts[0] = float(returned), out.counts[1] = float(counted);
}

// Gradient of one ray of `n`.
NUREC_FN float of_each(float const* gradient, float n) {
    return gradient ? *gradient / n : 0.f;
}

NUREC_FN void ray_backward(LidarRays const& in, LidarGrads const& d, int64_t i) {
    float range = 0, intensity = 0, drop = 0;
    bool const returned = in.returned[i];
    if (returned) {
        range = of_each(d.range, d.counts[0]) * (in.aimed ? 1.f : sign_of(in.distance[i] - in.ranges[i]));
        intensity = of_each(d.intensity, d.counts[0]) * sign_of(in.features[2 * i] - in.intensities[i]);
    }
    if (counts(in, i)) drop = of_each(d.drop, d.counts[1]) * drop_cross_entropy_slope(drop_of(in, i), returned);
    d.d_distance[i] = range;
    d.d_features[2 * i] = intensity, d.d_features[2 * i + 1] = drop;
    d.d_transmittance[i] = drop;
}

namespace cpu {

void lidar_loss(LidarRays const& in, LidarTerms const& out);
void lidar_loss_backward(LidarRays const& in, LidarGrads const& d);

}  // namespace cpu

namespace cuda {

void lidar_loss(LidarRays const& in, LidarTerms const& out, Queue const& queue);
void lidar_loss_backward(LidarRays const& in, LidarGrads const& d, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
