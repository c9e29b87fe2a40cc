// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::rays: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "../common/torch_gaussians.h"
#include "rays.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

void check_rays(at::Tensor const& view, at::Tensor const& directions, at::Tensor const& fractions) {
    check_tensor(directions, "directions", at::kFloat, {-1, 3}, directions.device());
    check_tensor(fractions, "fractions", at::kFloat, {-1}, directions.device());
    TORCH_CHECK_VALUE(fractions.size(0) == directions.size(0) || fractions.size(0) == 1, "fractions has shape ",
                      fractions.sizes(), ", but must have [", directions.size(0), "], or [1] if all rays are alike");
    check_view(view, directions.device());
    check_finite(directions, "directions");
    check_finite(fractions, "fractions");
}

// `make` is the device's driver.
template <class Make>
std::tuple<at::Tensor, at::Tensor, at::Tensor> rays_by(Make const& make, at::Tensor const& view,
                                                       at::Tensor const& directions, at::Tensor const& fractions,
                                                       bool with_origins) {
    check_rays(view, directions, fractions);
    int64_t const n = directions.size(0);
    at::Tensor origins = at::empty({with_origins ? n : 0, 3}, directions.options()), world = at::empty_like(directions);
    at::Tensor delays = at::empty({n}, directions.options());
    make(RayParams{n, fractions.size(0) == 1, &row_of(view)->path, directions.const_data_ptr<float>(),
                   fractions.const_data_ptr<float>(), with_origins ? origins.mutable_data_ptr<float>() : nullptr,
                   world.mutable_data_ptr<float>(), delays.mutable_data_ptr<float>()});
    return {origins, world, delays};
}

using at::Tensor;

#ifdef NUREC_CUDA

std::tuple<Tensor, Tensor, Tensor> rays(Tensor const& view, Tensor const& directions, Tensor const& fractions,
                                        bool origins) {
    Site site(directions.device());
    auto const launch = [&](RayParams const& p) {
        cuda::make_rays(p, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return rays_by(launch, view, directions, fractions, origins);
}

#else

std::tuple<Tensor, Tensor, Tensor> rays(Tensor const& view, Tensor const& directions, Tensor const& fractions,
                                        bool origins) {
    return rays_by(&cpu::make_rays, view, directions, fractions, origins);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("rays", &rays);
}

}  // namespace nurec
