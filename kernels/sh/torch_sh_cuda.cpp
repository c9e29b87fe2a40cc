// SPDX-License-Identifier: Apache-2.0
// nurec_lite::sh_colour on CUDA.
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "params.h"
#include "torch_sh.h"

namespace nurec {
namespace {

using at::Tensor;

cuda::Harmonics harmonics(Tensor const& sh, Tensor const& directions) {
    check_sh(sh, directions);
    return {sh.size(0), sh.size(1), sh.const_data_ptr<float>(), directions.const_data_ptr<float>()};
}

Tensor sh_colour(Tensor const& sh, Tensor const& directions) {
    c10::cuda::CUDAGuard const guard(sh.device());
    cuda::Harmonics const in = harmonics(sh, directions);
    Tensor colour = at::empty_like(directions);
    cuda::sh_forward(in, colour.mutable_data_ptr<float>(), c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return colour;
}

std::tuple<Tensor, Tensor> sh_colour_backward(Tensor const& sh, Tensor const& directions, Tensor const& d_colour) {
    c10::cuda::CUDAGuard const guard(sh.device());
    cuda::Harmonics const in = harmonics(sh, directions);
    check_tensor(d_colour, "d_colour", at::kFloat, {in.n, 3}, sh.device());
    Tensor d_sh = at::empty_like(sh), d_directions = at::empty_like(directions);
    cuda::sh_backward(in, d_colour.const_data_ptr<float>(), d_sh.mutable_data_ptr<float>(),
                      d_directions.mutable_data_ptr<float>(), c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {d_sh, d_directions};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("sh_colour", &sh_colour);
    m.impl("sh_colour_backward", &sh_colour_backward);
}

}  // namespace nurec
