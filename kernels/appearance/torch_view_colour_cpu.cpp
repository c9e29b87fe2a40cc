// SPDX-License-Identifier: Apache-2.0
// nurec_lite::view_colour on the CPU.
#include <torch/library.h>

#include "torch_view_colour.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor view_colour(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest, Tensor const& eye,
                   MaybeTensor const& seen) {
    return view_colour_by(&cpu::view_colour, placements, sh, rest, eye, seen);
}

FiveTensors view_colour_backward(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest,
                                 Tensor const& eye, Tensor const& d_colour) {
    return view_colour_gradients_by(&cpu::view_colour_backward, placements, sh, rest, eye, d_colour);
}

FiveTensors view_colour_rank1(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest, Tensor const& eye,
                              Tensor const& d_colour) {
    return view_colour_outer_by(&cpu::view_colour_rank1, placements, sh, rest, eye, d_colour);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("view_colour", &view_colour);
    m.impl("view_colour_backward", &view_colour_backward);
    m.impl("view_colour_rank1", &view_colour_rank1);
}

}  // namespace nurec
