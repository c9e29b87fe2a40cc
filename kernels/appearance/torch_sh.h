// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::sh_colour and ::sh_colour_backward take and give, on either device.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <tuple>

#include "../common/torch_check.h"
#include "sh.h"

namespace nurec {

// Of all coefficients in `sh`, or of the first there and the others in `rest`.
template <class T, class Pointer>
Coefficients<T> coefficients(at::Tensor const& sh, MaybeTensor const& rest, Pointer const& pointer) {
    if (rest) return {pointer(sh), pointer(*rest), sh.stride(0), rest->stride(0)};
    return {pointer(sh), pointer(sh) + 3, sh.stride(0), sh.stride(0)};
}

// Of shapes that were checked: how many coefficients a Gaussian has.
inline int64_t checked_bands(at::Tensor const& sh, MaybeTensor const& rest) {
    int64_t const s = sh.size(1) + (rest ? rest->size(1) : 0);
    TORCH_CHECK_VALUE(s == 1 || s == 4 || s == 9 || s == 16, "sh has ", s,
                      " coefficients, but must have 1, 4, 9 or 16 (degree 0 to 3)");
    return s;
}

inline Harmonics checked_harmonics(at::Tensor const& sh, MaybeTensor const& rest, at::Tensor const& directions) {
    check_tensor(sh, "sh", at::kFloat, {-1, rest ? 1 : -1, 3}, sh.device());
    if (rest) check_tensor(*rest, "rest", at::kFloat, {sh.size(0), -1, 3}, sh.device());
    int64_t const s = checked_bands(sh, rest);
    check_tensor(directions, "directions", at::kFloat, {sh.size(0), 3}, sh.device());
    auto const read = [](at::Tensor const& t) { return t.const_data_ptr<float>(); };
    return {sh.size(0), s, coefficients<float const>(sh, rest, read), directions.const_data_ptr<float>()};
}

using HarmonicsTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// `forward` and `backward` are the device's drivers.
template <class Forward>
at::Tensor sh_colour_by(Forward const& forward, at::Tensor const& sh, MaybeTensor const& rest,
                        at::Tensor const& directions) {
    Harmonics const in = checked_harmonics(sh, rest, directions);
    at::Tensor colour = at::empty_like(directions);
    forward(in, colour.mutable_data_ptr<float>());
    return colour;
}

template <class Backward>
HarmonicsTensors sh_gradients_by(Backward const& backward, at::Tensor const& sh, MaybeTensor const& rest,
                                 at::Tensor const& directions, at::Tensor const& d_colour) {
    Harmonics const in = checked_harmonics(sh, rest, directions);
    check_tensor(d_colour, "d_colour", at::kFloat, {in.n, 3}, sh.device());
    at::Tensor d_sh = at::empty_like(sh), d_directions = at::empty_like(directions);
    at::Tensor d_rest = rest ? at::empty_like(*rest) : at::empty({0}, sh.options());
    auto const write = [](at::Tensor const& t) { return t.mutable_data_ptr<float>(); };
    auto const into = coefficients<float>(d_sh, rest ? MaybeTensor(d_rest) : std::nullopt, write);
    backward(in, HarmonicsGrads{d_colour.const_data_ptr<float>(), into, d_directions.mutable_data_ptr<float>()});
    return {d_sh, d_rest, d_directions};
}

}  // namespace nurec
