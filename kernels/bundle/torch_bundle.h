// SPDX-License-Identifier: Apache-2.0
// What operators that list bundles check.
#pragma once

#include "../common/torch_check.h"
#include "params.h"

namespace nurec {

inline void check_lists(Bundles const& b) {
    TORCH_CHECK_VALUE(b.lists() <= MOST_LISTS, "there are ", b.n, " bundles of rays, but must be at most ",
                      MOST_LISTS / lists_of_bundle(b.is_camera), ": give fewer views, or views of fewer rays");
}

}  // namespace nurec
