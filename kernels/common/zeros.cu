// SPDX-License-Identifier: Apache-2.0
// Zeros by a kernel, which may come early, as a fill by the runtime may not.
#include "launch.cuh"

namespace nurec::cuda {
namespace {

constexpr int WORDS_PER_THREAD = 4;  // words of a thread

__global__ void fill_zeros_kernel(uint64_t* to, int64_t words) {
    wait_then_launch_dependents();
    int64_t const first = WORDS_PER_THREAD * blockIdx.x * int64_t(THREADS) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < WORDS_PER_THREAD; ++k)
        if (first + THREADS * k < words) to[first + THREADS * k] = 0;
}

}  // namespace

void fill_zeros(uint64_t* to, int64_t words, Queue const& queue) {
    if (words)
        launch_pdl(fill_zeros_kernel, blocks_for((words + WORDS_PER_THREAD - 1) / WORDS_PER_THREAD), THREADS, queue, to,
                   words);
}

}  // namespace nurec::cuda
