// SPDX-License-Identifier: Apache-2.0
// Where a CUDA operator runs, and what the operators on lists of Gaussians share.
#pragma once

#include "../project/params.h"
#include "torch_check.h"
#include "torch_cuda_memory.h"

namespace nurec {

struct Site {
    explicit Site(at::Device device) : guard(device), memory(device), options(at::TensorOptions().device(device)) {}

    cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream(); }
    at::Tensor empty(at::IntArrayRef shape, at::ScalarType type) const { return at::empty(shape, options.dtype(type)); }
    at::Tensor zeros(at::IntArrayRef shape, at::ScalarType type) const { return at::zeros(shape, options.dtype(type)); }

    c10::cuda::CUDAGuard guard;
    Memory memory;
    at::TensorOptions options;
};

inline cuda::Cells cells_of(at::Tensor const& directions, at::Tensor const& edges, int64_t columns, at::Device device) {
    check_cells(directions, edges, columns, device);
    return {edges.const_data_ptr<float>(), edges.size(0) + 1, columns, directions.const_data_ptr<float>(),
            directions.size(0)};
}

// The host waits for the device.
inline int64_t read_back(at::Tensor const& t, int64_t place) {
    return t.select(0, place).item<int64_t>();
}

}  // namespace nurec
