// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../common/torch_check.h"

namespace nurec {

inline void check_sh(at::Tensor const& sh, at::Tensor const& directions) {
    check_tensor(sh, "sh", at::kFloat, {-1, -1, 3}, sh.device());
    auto const s = sh.size(1);
    TORCH_CHECK_VALUE(s == 1 || s == 4 || s == 9 || s == 16, "sh has ", s,
                      " coefficients, but must have 1, 4, 9 or 16 (degree 0 to 3)");
    check_tensor(directions, "directions", at::kFloat, {sh.size(0), 3}, sh.device());
}

}  // namespace nurec
