// SPDX-License-Identifier: Apache-2.0
// What operators that list bundles check.
#pragma once

#include "../common/torch_check.h"
#include "params.h"

namespace nurec {

inline void check_bundle_count(int64_t n, bool is_camera) {
    int64_t const most = MOST_LISTS / lists_of_bundle(is_camera);
    TORCH_CHECK_VALUE(n <= most, "there are ", n, " bundles of rays, but must be at most ", most,
                      ": give fewer views, or views of fewer rays");
}

}  // namespace nurec
