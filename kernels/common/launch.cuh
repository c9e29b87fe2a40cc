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

inline Zeros zeros_at_once(int64_t words, Queue const& queue) {
    return {zeros<uint64_t>(words, queue), words};
}

// Who wants more than are left gets some of its own.
template <class T>
T* take(Zeros& from, int64_t n, Queue const& queue) {
    int64_t const words = (int64_t(sizeof(T)) * n + 7) / 8;
    if (words > from.left) return zeros<T>(n, queue);
    from.next += words, from.left -= words;
    return reinterpret_cast<T*>(from.next - words);
}

}  // namespace nurec::cuda
