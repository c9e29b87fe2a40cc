// SPDX-License-Identifier: Apache-2.0
// An image as a camera exposes it, and gradients. Pointers are those of the driver's device.
#pragma once

#include "../common/device.h"
#include "../math/expose.cuh"

namespace nurec {

constexpr int EXPOSURE_NUMBERS = 9;  // log gains, offsets and vignetting, as Exposure has them

struct ExposedImage {
    int height, width;
    float const* image;       // [H, W, 3]
    float const* log_gain;    // [3]
    float const* offset;      // [3], or null: none, as the gradients need none
    float const* vignetting;  // [3], or null: none

    NUREC_FN int64_t pixel(int column, int row) const { return int64_t(row) * width + column; }
    NUREC_FN Vec3<float> radial(int column, int row) const {
        return vignetting ? radial_at<float>(column, row, width, height) : Vec3<float>{0, 0, 0};
    }
    NUREC_FN Exposure<float> exposure() const { return {three(log_gain), three(offset), three(vignetting)}; }
    NUREC_FN static Vec3<float> three(float const* a) {
        return a ? Vec3<float>{a[0], a[1], a[2]} : Vec3<float>{0, 0, 0};
    }
};

struct ExposedGrads {
    float const* exposed;  // [H, W, 3]
    float* image;          // [H, W, 3]
    float* numbers[3];     // [3] each, as Exposure has them; the last one is null without vignetting
};

namespace cpu {

void expose(ExposedImage const& in, float* exposed);  // [H, W, 3]
void expose_backward(ExposedImage const& in, ExposedGrads const& d);

}  // namespace cpu

namespace cuda {

void expose(ExposedImage const& in, float* exposed, Queue const& queue);
void expose_backward(ExposedImage const& in, ExposedGrads const& d, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
