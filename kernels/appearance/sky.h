// SPDX-License-Identifier: Apache-2.0
// The sky behind blended features, and gradients. Pointers are those of the driver's device.
//
// Letters: R rays; a map of H rows and W columns.
#pragma once

#include "../common/device.h"
#include "../math/sky.cuh"

namespace nurec {

struct SkyRays {
    int64_t n;                   // R
    int height, width;           // H, W; 3 H W is below 2^31
    float const* transmittance;  // [R]
    float const* sky;            // [3, H, W] logits
    float const* directions;     // [R, 3] world

    int texels() const { return height * width; }
};

struct SkyGrads {
    float const* image;    // [R, 3]
    float* transmittance;  // [R]
    float* sky;            // [3, H, W]
};

namespace cpu {

void over_sky(SkyRays const& in, float const* features, float* image);  // [R, 3] each
void over_sky_backward(SkyRays const& in, SkyGrads const& d);

}  // namespace cpu

namespace cuda {

void over_sky(SkyRays const& in, float const* features, float* image, Queue const& queue);
void over_sky_backward(SkyRays const& in, SkyGrads const& d, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
