// SPDX-License-Identifier: Apache-2.0
#include "../common/launch.cuh"
#include "clock.h"

#ifndef __CUDACC__
#include <chrono>
#endif

namespace nurec::cuda {
namespace {

__device__ int64_t nanoseconds() {
#ifdef __CUDACC__
    int64_t found = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(found));
    return found;
#else  // drivers that run on the CPU
    std::chrono::nanoseconds const found = std::chrono::steady_clock::now().time_since_epoch();
    return found.count();
#endif
}

__global__ void begin_clock_kernel(int64_t* clock) {
    *clock = nanoseconds();
}

__global__ void end_clock_kernel(int64_t const* clock, float* elapsed) {
    *elapsed = 1e-3f * float(nanoseconds() - *clock);
}

}  // namespace

void begin_clock(int64_t* clock, Queue const& queue) {
    begin_clock_kernel<<<1, 1, 0, queue.stream>>>(clock);
}

void end_clock(int64_t const* clock, float* elapsed, Queue const& queue) {
    end_clock_kernel<<<1, 1, 0, queue.stream>>>(clock, elapsed);
}

}  // namespace nurec::cuda
