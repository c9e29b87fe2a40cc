// SPDX-License-Identifier: Apache-2.0
// Working memory of CUDA drivers from torch's caching allocator: safe to free on return, because it is reused in stream
// order.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

#include "launch.cuh"

namespace nurec {

class Memory {
  public:
    explicit Memory(at::Device device) : options_(at::TensorOptions(at::kByte).device(device)) {}
    Memory(Memory const&) = delete;

    cuda::Allocator allocator() { return {&allocate, this}; }

  private:
    static void* allocate(void* self, std::size_t bytes) {
        auto* memory = static_cast<Memory*>(self);
        memory->kept_.push_back(at::empty({static_cast<int64_t>(bytes)}, memory->options_));
        return memory->kept_.back().mutable_data_ptr();
    }

    at::TensorOptions options_;
    std::vector<at::Tensor> kept_;
};

}  // namespace nurec
