// SPDX-License-Identifier: Apache-2.0
// What every CUDA driver needs: launch sizes, and zeros.
#pragma once

#include <cuda_runtime.h>

#include "device.h"

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

// Zeros in which kernels add up.
template <class T>
T* zeros(int64_t n, Queue const& queue) {
    T* const array = queue.memory.array<T>(n);
    cudaMemsetAsync(array, 0, sizeof(T) * static_cast<std::size_t>(n), queue.stream);
    return array;
}

}  // namespace nurec::cuda
