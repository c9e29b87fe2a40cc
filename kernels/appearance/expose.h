// SPDX-License-Identifier: Apache-2.0
// An image as a camera exposes it, and gradients. Pointers are those of the driver's device.
#pragma once

#include "../common/device.h"
#include "../math/expose.cuh"

namespace nurec {

constexpr int EXPOSED_CHANNELS = 3;
constexpr int EXPOSURE_NUMBERS = 9;  // log gains, offsets and vignetting

struct ExposedImage {
    int height, width;
    float const* image;       // [H, W, 3]
    float const* log_gain;    // [3]
    float const* offset;      // [3], or null: zeros, where gradients need none
    float const* vignetting;  // [3], or null: none

    NUREC_FN int columns() const { return EXPOSED_CHANNELS * width; }  // of numbers
    NUREC_FN int64_t place(int column, int row) const { return int64_t(row) * columns() + column; }
    NUREC_FN Vec3<float> radial(int column, int row) const {
        if (!vignetting) return {0, 0, 0};
        return radial_at<float>(column / EXPOSED_CHANNELS, row, width, height);
    }
    NUREC_FN Exposure<float> exposure(int channel) const {
        Exposure<float> by = {log_gain[channel], offset ? offset[channel] : 0.f, {0, 0, 0}};
        if (vignetting) by.vignetting = {vignetting[0], vignetting[1], vignetting[2]};
        return by;
    }
};

struct ExposedGrads {
    float const* exposed;  // [H, W, 3]
    float* image;          // [H, W, 3]
    float* log_gain;       // [3]
    float* offset;         // [3]
    float* vignetting;     // [3], or null

    NUREC_FN int numbers() const { return vignetting ? EXPOSURE_NUMBERS : EXPOSURE_NUMBERS - 3; }
    NUREC_FN float* number(int k) const { return k < 3 ? log_gain + k : k < 6 ? offset + k - 3 : vignetting + k - 6; }
};

// Adds a channel's sums to those of all.
template <class T>
NUREC_FN void add_channel(Exposure<float> const& one, int channel, T (&numbers)[EXPOSURE_NUMBERS]) {
    for (int k = 0; k < EXPOSED_CHANNELS; ++k) {
        numbers[k] += k == channel ? one.log_gain : 0.f;
        numbers[3 + k] += k == channel ? one.offset : 0.f;
    }
    numbers[6] += one.vignetting.x, numbers[7] += one.vignetting.y, numbers[8] += one.vignetting.z;
}

namespace cpu {

void expose(ExposedImage const& in, float* exposed);  // [H, W, 3]
void expose_backward(ExposedImage const& in, ExposedGrads const& d);

}  // namespace cpu

namespace cuda {

void expose(ExposedImage const& in, float* exposed, Queue const& queue);
void expose_backward(ExposedImage const& in, ExposedGrads const& d, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
