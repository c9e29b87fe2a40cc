// SPDX-License-Identifier: Apache-2.0
// The loss of an image, (1 - w) L1 + w (1 - SSIM), and its gradient. Pointers are those of the driver's device.
//
// Letters: H rows of J = 3 W numbers. The three channels of a pixel lie side by side and are treated alike: the taps of
// the window along a row are three numbers apart.
#pragma once

#include "../common/device.h"
#include "../math/ssim.cuh"

namespace nurec {

constexpr int CHANNELS = 3;
constexpr int REACH = CHANNELS * SSIM_HALF;  // numbers of a row on either side that a window sees

constexpr int MOMENTS = 4;  // of math/ssim.cuh
constexpr int SLOPES = 3;   // of math/ssim.cuh, kept for the backward pass

struct ImagePair {
    int64_t height, row;    // H, J
    float const* rendered;  // [H, J]
    float const* target;    // [H, J] 0 to 1
    float weight;           // w
};

struct ImageGrads {
    float const* slopes;  // [3, H, J] kept by the forward pass: mean, sum and difference of Ssim
    float const* d_loss;  // [] of the loss
    float* rendered;      // [H, J]
};

namespace cpu {

void image_loss(ImagePair const& in, float* loss, float* slopes);  // [], [3, H, J]
void image_loss_backward(ImagePair const& in, ImageGrads const& d);

}  // namespace cpu

namespace cuda {

void image_loss(ImagePair const& in, float* loss, float* slopes, Queue const& queue);
void image_loss_backward(ImagePair const& in, ImageGrads const& d, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
