// SPDX-License-Identifier: Apache-2.0
// What nurec_lite::rays takes and gives, on either device.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <tuple>

#include "../common/torch_view.h"
#include "rays.h"

namespace nurec {

inline void check_rays(at::Tensor const& view, at::Tensor const& directions, at::Tensor const& fractions) {
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

}  // namespace nurec
