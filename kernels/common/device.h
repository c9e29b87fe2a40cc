// SPDX-License-Identifier: Apache-2.0
// Queue and memory of a CUDA driver, from the binding, without CUDA's headers.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace nurec::cuda {

// Memory from the caller's allocator; it lives until the work that was queued on its stream is done.
struct Allocator {
    void* (*allocate)(void* owner, std::size_t bytes);
    void* owner;

    template <class T>
    T* array(int64_t n) const {
        return static_cast<T*>(allocate(owner, sizeof(T) * static_cast<std::size_t>(n > 0 ? n : 1)));
    }
};

struct Queue {
    CUstream_st* stream;
    Allocator memory;
};

// For several kernels, written at once (launch.cuh).
struct Zeros {
    uint64_t* next;
    int64_t left;
};

}  // namespace nurec::cuda
