// SPDX-License-Identifier: Apache-2.0
// What every CUDA driver needs: launch sizes, and zeros.
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

// Of the present device; 0 where that cannot be told.
inline int attribute_of_device(cudaDeviceAttr attribute) {
    int device = 0, value = 0;
    bool const told =
        cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess;
    return told ? value : 0;
}

inline int multiprocessors() {  // at least one
    int const n = attribute_of_device(cudaDevAttrMultiProcessorCount);
    return n > 0 ? n : 1;
}

// Whether a kernel's blocks may wait on the device for those of the kernel before: of sm_90 on, unless the environment
// has NUREC_LITE_EARLY_LAUNCHES=0, so that no kernel's time holds its waiting. Not on a stream with a priority of its
// own: others run beside it, and blocks that wait take their room.
inline bool waits_on_device(Queue const& queue) {
    static char const* const asked = std::getenv("NUREC_LITE_EARLY_LAUNCHES");
    if (asked && std::strcmp(asked, "0") == 0) return false;
    int priority = 0;
    if (cudaStreamGetPriority(queue.stream, &priority) != cudaSuccess || priority) return false;
    return attribute_of_device(cudaDevAttrComputeCapabilityMajor) >= 9;
}

// Queues a kernel whose blocks may come to the device while the last ones of the kernel before are still at work, which
// spares the time from the end of one to the begin of the next (programmatic dependent launch). It calls
// after_others() before it touches memory.
template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, unsigned threads, Queue const& queue,
                  Arguments const&... arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks, config.blockDim = dim3(threads), config.stream = queue.stream;
    config.attrs = &early, config.numAttrs = waits_on_device(queue);
    cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

// In such a kernel: waits until the kernel before has ended, and what it wrote is there.
__device__ inline void wait_for_others() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel's blocks may come, once all of this one's have.
__device__ inline void let_others_come() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whoever waits first before others come knows that all that was queued before the present kernel's predecessor has
// ended, too.
__device__ inline void after_others() {
    wait_for_others();
    let_others_come();
}

void fill_zeros(uint64_t* to, int64_t words, Queue const& queue);

template <class T>
constexpr int64_t words_of(int64_t n) {
    return (int64_t(sizeof(T)) * n + 7) / 8;
}

// Zeros in which kernels add up.
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

// Who wants more than are left gets some of its own.
template <class T>
T* take(Zeros& from, int64_t n, Queue const& queue) {
    int64_t const words = words_of<T>(n);
    if (words > from.left) return zeros<T>(n, queue);
    from.next += words, from.left -= words;
    return reinterpret_cast<T*>(from.next - words);
}

}  // namespace nurec::cuda
