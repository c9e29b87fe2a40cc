// SPDX-License-Identifier: Apache-2.0
// nurec_lite::footprints on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_footprints.h"

namespace nurec {
namespace {

at::Tensor footprints(at::TensorList seen, double nearest, double margin) {
    Site site(seen_of(seen).means.device());
    auto const launch = [&](Watched const& in, float* most) {
        cuda::footprints(in, most, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return footprints_by(launch, seen, nearest, margin);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("footprints", &footprints);
}

}  // namespace nurec
