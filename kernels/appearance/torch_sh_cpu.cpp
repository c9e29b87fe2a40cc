// SPDX-License-Identifier: Apache-2.0
// nurec_lite::sh_colour on the CPU.
#include <torch/library.h>

#include "torch_sh.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor sh_colour(Tensor const& sh, MaybeTensor const& rest, Tensor const& directions) {
    return sh_colour_by(&cpu::sh_forward, sh, rest, directions);
}

HarmonicsTensors sh_colour_backward(Tensor const& sh, MaybeTensor const& rest, Tensor const& directions,
                                    Tensor const& d_colour) {
    return sh_gradients_by(&cpu::sh_backward, sh, rest, directions, d_colour);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("sh_colour", &sh_colour);
    m.impl("sh_colour_backward", &sh_colour_backward);
}

}  // namespace nurec
