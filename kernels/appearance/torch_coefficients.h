// SPDX-License-Identifier: Apache-2.0
// Coefficients of spherical harmonics, in one tensor or in two.
#pragma once

#include "../common/torch_check.h"
#include "sh.h"

namespace nurec {

// Returns the coefficients of `sh`, or the first one of `sh` and the others of `rest`.
template <class T, class Pointer>
Coefficients<T> coefficients(at::Tensor const& sh, MaybeTensor const& rest, Pointer const& pointer) {
    if (rest) return {pointer(sh), pointer(*rest), sh.stride(0), rest->stride(0)};
    return {pointer(sh), pointer(sh) + 3, sh.stride(0), sh.stride(0)};
}

// Returns how many coefficients a Gaussian has; the shapes were checked before.
inline int64_t checked_bands(at::Tensor const& sh, MaybeTensor const& rest) {
    int64_t const s = sh.size(1) + (rest ? rest->size(1) : 0);
    TORCH_CHECK_VALUE(s == 1 || s == 4 || s == 9 || s == 16, "sh has ", s,
                      " coefficients, but must have 1, 4, 9 or 16 (degree 0 to 3)");
    return s;
}

}  // namespace nurec
