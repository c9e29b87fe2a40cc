// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::sh_colour and ::sh_colour_backward: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "torch_coefficients.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

Harmonics checked_harmonics(at::Tensor const& sh, MaybeTensor const& rest, at::Tensor const& directions) {
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

using at::Tensor;

#ifdef NUREC_CUDA

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

#else

Tensor sh_colour(Tensor const& sh, MaybeTensor const& rest, Tensor const& directions) {
    return sh_colour_by(&cpu::sh_forward, sh, rest, directions);
}

HarmonicsTensors sh_colour_backward(Tensor const& sh, MaybeTensor const& rest, Tensor const& directions,
                                    Tensor const& d_colour) {
    return sh_gradients_by(&cpu::sh_backward, sh, rest, directions, d_colour);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("sh_colour", &sh_colour);
    m.impl("sh_colour_backward", &sh_colour_backward);
}

}  // namespace nurec
