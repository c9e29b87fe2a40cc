// SPDX-License-Identifier: Apache-2.0
// nurec_lite::sh_colour on the CPU.
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "sh_cpu.h"
#include "torch_sh.h"

namespace nurec {
namespace {

using at::Tensor;

cpu::Harmonics harmonics(Tensor const& sh, Tensor const& directions) {
    check_sh(sh, directions);
    return {sh.size(0), sh.size(1), sh.const_data_ptr<float>(), directions.const_data_ptr<float>()};
}

Tensor sh_colour(Tensor const& sh, Tensor const& directions) {
    cpu::Harmonics const in = harmonics(sh, directions);
    Tensor colour = at::empty_like(directions);
    cpu::sh_forward(in, colour.mutable_data_ptr<float>());
    return colour;
}

std::tuple<Tensor, Tensor> sh_colour_backward(Tensor const& sh, Tensor const& directions, Tensor const& d_colour) {
    cpu::Harmonics const in = harmonics(sh, directions);
    check_tensor(d_colour, "d_colour", at::kFloat, {in.n, 3}, sh.device());
    Tensor d_sh = at::empty_like(sh), d_directions = at::empty_like(directions);
    cpu::sh_backward(in, d_colour.const_data_ptr<float>(), d_sh.mutable_data_ptr<float>(),
                     d_directions.mutable_data_ptr<float>());
    return {d_sh, d_directions};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("sh_colour", &sh_colour);
    m.impl("sh_colour_backward", &sh_colour_backward);
}

}  // namespace nurec
