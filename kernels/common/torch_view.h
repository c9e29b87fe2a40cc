// SPDX-License-Identifier: Apache-2.0
// The row of a view, on the device of whatever it is used with.
#pragma once

#include "../math/view_row.cuh"
#include "torch_check.h"

namespace nurec {

inline void check_view(at::Tensor const& view, at::Device device) {
    check_tensor(view, "view", at::kFloat, {VIEW_NUMBERS}, device);
    check_finite(view, "view");
}

// The sensor is a plain argument, since the host must not wait for the row.
inline void check_sensor(at::Tensor const& view, bool is_camera) {
    auto const host = values_of(view);
    if (!host) return;
    bool const there = reinterpret_cast<ViewRow<float> const*>(host->const_data_ptr<float>())->view.is_camera > 0;
    TORCH_CHECK_VALUE(there == is_camera, "view is of a ", there ? "camera" : "lidar",
                      ", but is_camera says otherwise");
}

inline ViewRow<float> const* row_of(at::Tensor const& view) {
    return reinterpret_cast<ViewRow<float> const*>(view.const_data_ptr<float>());
}

}  // namespace nurec
