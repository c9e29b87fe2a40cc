// SPDX-License-Identifier: Apache-2.0
// Tensors that kernels read in vectors of four.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace nurec {

// The tensor itself, but a copy of one that begins in the middle of a vector, as a slice of a flat array may.
inline at::Tensor aligned(at::Tensor const& t) {
    return reinterpret_cast<std::uintptr_t>(t.const_data_ptr()) % 16 ? t.clone() : t;
}

}  // namespace nurec
