// SPDX-License-Identifier: Apache-2.0
// What the CPU operators on lists of Gaussians share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "../project/project_cpu.h"
#include "torch_check.h"

namespace nurec {

template <class T>
at::Tensor copied(std::vector<T> const& values, at::ScalarType dtype, std::initializer_list<int64_t> shape) {
    at::Tensor out = at::empty(at::IntArrayRef(shape.begin(), shape.size()), at::TensorOptions(dtype));
    if (!values.empty()) std::memcpy(out.mutable_data_ptr(), values.data(), out.nbytes());
    return out;
}

inline cpu::Cells cells_of(at::Tensor const& directions, at::Tensor const& edges, int64_t columns) {
    check_cells(directions, edges, columns, at::kCPU);
    return {edges.const_data_ptr<float>(), edges.size(0) + 1, columns, directions.const_data_ptr<float>(),
            directions.size(0)};
}

}  // namespace nurec
