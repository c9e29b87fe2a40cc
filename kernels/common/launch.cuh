// SPDX-License-Identifier: Apache-2.0
// Launch sizes and zeros for every CUDA driver.
#pragma once

#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

#include "device.h"

namespace nurec::cuda {

constexpr int THREADS = 256;

inline unsigned blocks_for(int64_t n) {
    return static_cast<unsigned>((n + THREADS - 1) / THREADS);
}

// An attribute of the current device; 0 if CUDA does not report it.
inline int attribute_of_device(cudaDeviceAttr attribute) {
    int device = 0, value = 0;
    bool const known =
        cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess;
    return known ? value : 0;
}

inline int multiprocessors() {  // at least one
    int const n = attribute_of_device(cudaDevAttrMultiProcessorCount);
    return n > 0 ? n : 1;
}

// Returns whether kernels on this queue use programmatic dependent launch. It needs sm_90. NUREC_LITE_EARLY_LAUNCHES=0
// in the environment turns it off, so that a profile shows no kernel waiting. Streams with a priority of their own do
// not use it: other streams run at the same time, and waiting blocks would take their place.
inline bool pdl_is_on(Queue const& queue) {
    static char const* const asked = std::getenv("NUREC_LITE_EARLY_LAUNCHES");
    if (asked && std::strcmp(asked, "0") == 0) return false;
    int priority = 0;
    if (cudaStreamGetPriority(queue.stream, &priority) != cudaSuccess || priority) return false;
    return attribute_of_device(cudaDevAttrComputeCapabilityMajor) >= 9;
}

// Queues a kernel with programmatic dependent launch: its blocks may start before the kernel before it has finished,
// which hides the time between two kernels. The kernel calls wait_then_launch_dependents() before it touches memory.
template <class... Parameters, class... Arguments>
void launch_pdl(void (*kernel)(Parameters...), dim3 blocks, unsigned threads, Queue const& queue,
                Arguments const&... arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks, config.blockDim = dim3(threads), config.stream = queue.stream;
    config.attrs = &early, config.numAttrs = pdl_is_on(queue);
    cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

// Waits until the kernel before has finished and its writes are visible. Until then a kernel must not read memory that
// the one before writes, and must not overwrite memory that any earlier kernel still reads.
__device__ inline void grid_dependency_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allows the next kernel to start its blocks once every block of this kernel has called this.
__device__ inline void launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The usual order. A kernel that waits before it launches its dependents knows that everything queued before its
// predecessor has finished, too.
__device__ inline void wait_then_launch_dependents() {
    grid_dependency_wait();
    launch_dependents();
}

void fill_zeros(uint64_t* to, int64_t words, Queue const& queue);

template <class T>
constexpr int64_t words_of(int64_t n) {
    return (int64_t(sizeof(T)) * n + 7) / 8;
}

// An array of zeros, for sums and counters.
template <class T>
T* zeros(int64_t n, Queue const& queue) {
    int64_t const words = words_of<T>(n);
    auto* const array = queue.memory.array<uint64_t>(words);
    fill_zeros(array, words, queue);
    return reinterpret_cast<T*>(array);
}

inline Zeros zeros_at_once(int64_t words, Queue const& queue) {
    return {zeros<uint64_t>(words, queue), words};
}

// Takes n values from an array of zeros; allocates new zeros if too few are left.
template <class T>
T* take(Zeros& from, int64_t n, Queue const& queue) {
    int64_t const words = words_of<T>(n);
    if (words > from.left) return zeros<T>(n, queue);
    from.next += words, from.left -= words;
    return reinterpret_cast<T*>(from.next - words);
}

}  // namespace nurec::cuda
