// SPDX-License-Identifier: Apache-2.0
// nurec_lite::rays on CUDA.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "params.h"
#include "torch_rays.h"

namespace nurec {
namespace {

using at::Tensor;

void launch(cuda::RayParams const& p) {
    cuda::make_rays(p, c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

std::tuple<Tensor, Tensor, Tensor> rays(Tensor const& trajectory, Tensor const& directions, Tensor const& fractions) {
    c10::cuda::CUDAGuard const guard(directions.device());
    return rays_by<cuda::RayParams>(&launch, trajectory, directions, fractions);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("rays", &rays);
}

}  // namespace nurec
