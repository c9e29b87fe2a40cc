// SPDX-License-Identifier: Apache-2.0
// One Gaussian at a time: its coefficients lie side by side, and the compiler makes vectors of them. Sixteen Gaussians
// side by side took twice as long, because that needs their coefficients transposed.
#include "../common/triples_cpu.h"
#include "../math/sh.cuh"
#include "sh.h"

namespace nurec::cpu {
namespace {

template <int S>
void read(Coefficients<float const> const& sh, int64_t i, float (&numbers)[3 * S]) {
    for (int c = 0; c < 3 * S; ++c) numbers[c] = sh.at(i, c);
}

template <int S>
void forward(Harmonics const& in, float* colour) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < in.n; ++i) {
        float numbers[3 * S];
        read<S>(in.sh, i, numbers);
        store(colour, i, sh_colour<S>(numbers, load(in.directions, i)));
    }
}

template <int S>
void backward(Harmonics const& in, HarmonicsGrads const& d) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < in.n; ++i) {
        float numbers[3 * S], gradients[3 * S];
        read<S>(in.sh, i, numbers);
        store(d.directions, i, sh_colour_backward<S>(numbers, load(in.directions, i), load(d.d_colour, i), gradients));
        for (int c = 0; c < 3 * S; ++c) d.sh.at(i, c) = gradients[c];
    }
}

}  // namespace

void sh_forward(Harmonics const& in, float* colour) {
    switch (in.s) {
        case 1:
            return forward<1>(in, colour);
        case 4:
            return forward<4>(in, colour);
        case 9:
            return forward<9>(in, colour);
        default:
            return forward<16>(in, colour);
    }
}

void sh_backward(Harmonics const& in, HarmonicsGrads const& d) {
    switch (in.s) {
        case 1:
            return backward<1>(in, d);
        case 4:
            return backward<4>(in, d);
        case 9:
            return backward<9>(in, d);
        default:
            return backward<16>(in, d);
    }
}

}  // namespace nurec::cpu
