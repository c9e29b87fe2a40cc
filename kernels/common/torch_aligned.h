// SPDX-License-Identifier: Apache-2.0
// Tensors that kernels read in vectors of four.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>

namespace nurec {

constexpr int64_t VECTOR = 16;  // bytes that are loaded together

inline bool is_aligned(at::Tensor const& t) {
    return reinterpret_cast<std::uintptr_t>(t.const_data_ptr()) % VECTOR == 0;
}

inline void check_aligned(at::Tensor const& t, char const* name) {
    TORCH_CHECK_VALUE(is_aligned(t), name, " does not start on a multiple of ", VECTOR, " bytes; call .clone()");
}

// The tensor itself, but a copy of one that begins in the middle of a vector, as a slice of a flat array may, or a
// gradient that autograd cut out of a larger one.
inline at::Tensor aligned(at::Tensor const& t) {
    return is_aligned(t) ? t : t.clone();
}

}  // namespace nurec
