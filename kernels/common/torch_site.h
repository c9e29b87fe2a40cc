// SPDX-License-Identifier: Apache-2.0
// Place of a CUDA operator: its device, the present stream, and working memory from torch's caching allocator, which
// is safe to free on return, because it is reused in stream order. A CPU driver that alone knows the size of its
// results gives vectors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#ifndef NUREC_CUDA

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

#else

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

#include "device.h"

namespace nurec {

class Site {
  public:
    explicit Site(at::Device device) : guard_(device), options_(at::TensorOptions().device(device)) {}
    Site(Site const&) = delete;

    at::Device device() const { return options_.device(); }
    cuda::Queue queue() { return {c10::cuda::getCurrentCUDAStream(), {&allocate, this}}; }
    at::Tensor empty(at::IntArrayRef shape, at::ScalarType type) const {
        return at::empty(shape, options_.dtype(type));
    }

  private:
    static void* allocate(void* self, std::size_t bytes) {
        auto* site = static_cast<Site*>(self);
        site->kept_.push_back(site->empty({static_cast<int64_t>(bytes)}, at::kByte));
        return site->kept_.back().mutable_data_ptr();
    }

    c10::cuda::CUDAGuard guard_;
    at::TensorOptions options_;
    std::vector<at::Tensor> kept_;
};

// The host waits for the device.
inline int64_t read_back(at::Tensor const& t, int64_t place) {
    return t.select(0, place).item<int64_t>();
}

}  // namespace nurec

#endif
