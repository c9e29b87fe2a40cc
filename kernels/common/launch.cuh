// SPDX-License-Identifier: Apache-2.0
// What every CUDA driver needs: launch sizes, and temporary storage.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace nurec::cuda {

constexpr int THREADS = 256;

inline unsigned blocks_for(int64_t n) {
    return static_cast<unsigned>((n + THREADS - 1) / THREADS);
}

// Of the present device; one where that cannot be told.
inline int multiprocessors() {
    int device = 0, n = 0;
    bool const told = cudaGetDevice(&device) == cudaSuccess &&
                      cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
    return told && n > 0 ? n : 1;
}

// Memory from the caller's allocator; it lives until the work that was queued on its stream is done.
struct Allocator {
    void* (*allocate)(void* owner, std::size_t bytes);
    void* owner;

    template <class T>
    T* array(int64_t n) const {
        return static_cast<T*>(allocate(owner, sizeof(T) * static_cast<std::size_t>(n > 0 ? n : 1)));
    }
};

}  // namespace nurec::cuda
