// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::sh_colour and ::sh_colour_backward take and give, on either device.
#pragma once

#include <ATen/ops/empty_like.h>

#include <tuple>

#include "../common/torch_check.h"
#include "params.h"

namespace nurec {

inline Harmonics checked_harmonics(at::Tensor const& sh, at::Tensor const& directions) {
    check_tensor(sh, "sh", at::kFloat, {-1, -1, 3}, sh.device());
    auto const s = sh.size(1);
    TORCH_CHECK_VALUE(s == 1 || s == 4 || s == 9 || s == 16, "sh has ", s,
                      " coefficients, but must have 1, 4, 9 or 16 (degree 0 to 3)");
    check_tensor(directions, "directions", at::kFloat, {sh.size(0), 3}, sh.device());
    return {sh.size(0), s, sh.const_data_ptr<float>(), directions.const_data_ptr<float>()};
}

// `forward` and `backward` are the device's drivers.
template <class Forward>
at::Tensor sh_colour_by(Forward const& forward, at::Tensor const& sh, at::Tensor const& directions) {
    Harmonics const in = checked_harmonics(sh, directions);
    at::Tensor colour = at::empty_like(directions);
    forward(in, colour.mutable_data_ptr<float>());
    return colour;
}

template <class Backward>
std::tuple<at::Tensor, at::Tensor> sh_gradients_by(Backward const& backward, at::Tensor const& sh,
                                                   at::Tensor const& directions, at::Tensor const& d_colour) {
    Harmonics const in = checked_harmonics(sh, directions);
    check_tensor(d_colour, "d_colour", at::kFloat, {in.n, 3}, sh.device());
    at::Tensor d_sh = at::empty_like(sh), d_directions = at::empty_like(directions);
    backward(in, HarmonicsGrads{d_colour.const_data_ptr<float>(), d_sh.mutable_data_ptr<float>(),
                                d_directions.mutable_data_ptr<float>()});
    return {d_sh, d_directions};
}

}  // namespace nurec
