// SPDX-License-Identifier: Apache-2.0
// nurec_lite::sh_colour on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_sh.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor sh_colour(Tensor const& sh, MaybeTensor const& rest, Tensor const& directions) {
    Site site(sh.device());
    auto const launch = [&](Harmonics const& in, float* colour) {
        cuda::sh_forward(in, colour, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return sh_colour_by(launch, sh, rest, directions);
}

HarmonicsTensors sh_colour_backward(Tensor const& sh, MaybeTensor const& rest, Tensor const& directions,
                                    Tensor const& d_colour) {
    Site site(sh.device());
    auto const launch = [&](Harmonics const& in, HarmonicsGrads const& d) {
        cuda::sh_backward(in, d, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return sh_gradients_by(launch, sh, rest, directions, d_colour);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("sh_colour", &sh_colour);
    m.impl("sh_colour_backward", &sh_colour_backward);
}

}  // namespace nurec
