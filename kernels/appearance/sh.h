// SPDX-License-Identifier: Apache-2.0
// Colours by direction. Pointers are those of the driver's device. Letters: N Gaussians, S coefficients.
#pragma once

#include "../common/device.h"
#include "../math/vec.cuh"

namespace nurec {

// Coefficients [N, S, 3], as one array or as the first of each Gaussian and the rest. T: float, or float const.
template <class T>
struct Coefficients {
    T* first;
    T* rest;
    int64_t first_stride, rest_stride;  // numbers from one Gaussian to the next

    // Number c of 3 S of Gaussian i.
    NUREC_FN T& at(int64_t i, int c) const {
        return c < 3 ? first[first_stride * i + c] : rest[rest_stride * i + c - 3];
    }
};

struct Harmonics {
    int64_t n, s;  // s: 1, 4, 9 or 16
    Coefficients<float const> sh;
    float const* directions;  // [N, 3] unit
};

struct HarmonicsGrads {
    float const* d_colour;  // [N, 3]
    Coefficients<float> sh;
    float* directions;
};

namespace cpu {

void sh_forward(Harmonics const& in, float* colour);  // [N, 3]
void sh_backward(Harmonics const& in, HarmonicsGrads const& d);

}  // namespace cpu

namespace cuda {

void sh_forward(Harmonics const& in, float* colour, Queue const& queue);
void sh_backward(Harmonics const& in, HarmonicsGrads const& d, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
