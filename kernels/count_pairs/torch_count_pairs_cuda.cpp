// SPDX-License-Identifier: Apache-2.0
// nurec_lite::count_pairs on CUDA.
#include <torch/library.h>

#include "params.h"
#include "torch_count_pairs.h"
#include "../render/torch_render_cuda.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor count_pairs(Tensor const& still_means, Tensor const& still_quats, Tensor const& means, Tensor const& quats,
                   Tensor const& velocities, Tensor const& scales, Tensor const& opacities, Tensor const& features,
                   Tensor const& origins, Tensor const& directions, Tensor const& delays, Tensor const& rays,
                   Tensor const& offsets, Tensor const& gaussians, bool moving, at::ArrayRef<double> centre) {
    GaussianTensors const g = {still_means, still_quats, means, quats, velocities, scales, opacities, centre};
    RenderTensors const in = {g, features, origins, directions, delays, rays, offsets, gaussians};
    check_render(in);
    c10::cuda::CUDAGuard const guard(means.device());
    Memory memory(means.device());
    Tensor const found = empty_counts(in);
    cuda::count_pairs(make_params(in, moving, memory), counts_of(found), c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return found;
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("count_pairs", &count_pairs);
}

}  // namespace nurec
