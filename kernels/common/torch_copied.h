// SPDX-License-Identifier: Apache-2.0
// Results of a CPU driver as a tensor; a driver that alone knows their size gives vectors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <vector>

namespace nurec {

template <class T>
at::Tensor copied(std::vector<T> const& values, at::ScalarType dtype, std::initializer_list<int64_t> shape) {
    at::Tensor out = at::empty(at::IntArrayRef(shape.begin(), shape.size()), at::TensorOptions(dtype));
    if (!values.empty()) std::memcpy(out.mutable_data_ptr(), values.data(), out.nbytes());
    return out;
}

}  // namespace nurec
