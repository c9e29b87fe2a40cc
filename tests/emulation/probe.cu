// SPDX-License-Identifier: Apache-2.0
// Kernels that show the work of the emulation, for tests/native/test_emulated_cuda.py. Functions return an error's
// text, or none.
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <thrust/iterator/counting_iterator.h>

#include <string>

namespace {

std::string error;

template <class Function>
char const* text_of(Function const& function) {
    error.clear();
    try {
        function();
    } catch (std::exception const& e) {
        error = e.what();
    }
    return error.c_str();
}

// ---- where threads meet

__global__ void two_barriers(int* out) {
    if (threadIdx.x < 40) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1;
}

__global__ void barrier_of_some(int* out) {
    if (threadIdx.x % 2) return;
    out[threadIdx.x] = __syncthreads_count(threadIdx.x < 10);
    out[threadIdx.x + 1] = 10 * __syncthreads_or(threadIdx.x == 8) + __syncthreads_and(threadIdx.x < 100);
}

__global__ void lane_that_left(int* out) {
    if (threadIdx.x == 37) return;
    out[threadIdx.x] = __shfl_xor_sync(~0u, int(threadIdx.x), 1);
}

__global__ void lane_beside_the_mask(int* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffff, int(threadIdx.x), 20);
}

__global__ void lane_not_in_its_mask(int* out) {
    out[threadIdx.x] = __any_sync(0xffff, 1);
}

__global__ void shuffles(int* out) {
    int const t = int(threadIdx.x);
    out[t] = __shfl_xor_sync(~0u, t, 5);
    out[64 + t] = __shfl_up_sync(~0u, t, 3);
    out[128 + t] = __shfl_down_sync(~0u, t, 3, 8);
    out[192 + t] = int(__shfl_sync(~0u, 0.5 * t, 9, 16) * 2);  // of doubles
}

__global__ void votes(int* out) {
    unsigned const t = threadIdx.x;
    out[t] = int(__ballot_sync(~0u, t % 3 == 0));
    out[64 + t] = 10 * __any_sync(~0u, t == 40) + __all_sync(~0u, t < 40);
    out[128 + t] = int(__reduce_add_sync(~0u, t)) + 10000 * __reduce_max_sync(~0u, -int(t));
}

// Either half of a warp on its own, one sooner than the other.
__global__ void halves(int* out) {
    int value = int(threadIdx.x);
    if (threadIdx.x < 16) {
        for (int step = 1; step < 16; step *= 2) value += __shfl_xor_sync(0x0000ffffu, value, step);
    } else {
        value = __shfl_sync(0xffff0000u, value, 31);
    }
    __syncwarp();
    out[threadIdx.x] = value;
}

// ---- shared memory

template <bool WAITS>
__global__ void neighbours(int* out) {
    __shared__ int a[64], b;
    int const t = int(threadIdx.x);
    a[t] = t;
    if (t == 0) b = 100;
    if (WAITS) __syncthreads();
    out[t] = b + a[(t + 63) % 64];
}

__global__ void left_unwritten(int* out) {
    __shared__ alignas(16) int first;
    extern __shared__ int second[];
    if (blockIdx.x == 0) first = second[0] = 5;
    out[blockIdx.x] = first + second[0];
}

template <class T>
__global__ void own_of_each_instance(int* out) {
    __shared__ T mine[8];
    if (threadIdx.x == 0) *out = int(sizeof(mine));
}

__global__ void fills_dynamic(int* out, int n) {
    extern __shared__ int all[];
    all[threadIdx.x] = 1;
    if (threadIdx.x < unsigned(n)) all[n - 1] = 7;
    out[0] = 1;
}

__global__ void beyond(int* out) {
    __shared__ int a[4];
    a[threadIdx.x] = 1;
    out[0] = a[0];
}

__global__ void misaligned(float const* in, float* out) {
    out[0] = reinterpret_cast<float4 const*>(in + 1)->x;
}

// ---- indices

__global__ void places(int* out, int base) {
    unsigned const block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned const thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] += base + int(100 * block + thread);
}

template <int A, bool B, class T>
__global__ void product(T* out, T by) {
    out[0] = B ? A * by : T(-1);
}

using Kernel = void (*)(int*);

}  // namespace

extern "C" {

char const* run(char const* name, int* out, int threads) {
    std::string const wanted = name;
    Kernel const kernel = wanted == "two_barriers"           ? two_barriers
                          : wanted == "barrier_of_some"      ? barrier_of_some
                          : wanted == "lane_that_left"       ? lane_that_left
                          : wanted == "lane_beside_the_mask" ? lane_beside_the_mask
                          : wanted == "lane_not_in_its_mask" ? lane_not_in_its_mask
                          : wanted == "shuffles"             ? shuffles
                          : wanted == "votes"                ? votes
                          : wanted == "halves"               ? halves
                          : wanted == "with_barrier"         ? neighbours<true>
                          : wanted == "without_barrier"      ? neighbours<false>
                                                             : beyond;
    return text_of([&] { kernel<<<1, threads>>>(out); });
}

char const* run_unwritten(int* out, int blocks) {
    return text_of([&] { left_unwritten<<<blocks, 1, sizeof(int)>>>(out); });
}

char const* run_instances(int* out) {
    return text_of(
        [&] { own_of_each_instance<char><<<1, 32>>>(out), own_of_each_instance<double><<<1, 32>>>(out + 1); });
}

char const* run_dynamic(int* out, int given, int used, int allowed) {
    return text_of([&] {
        if (allowed) cudaFuncSetAttribute(fills_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, allowed);
        fills_dynamic<<<1, 32, given * sizeof(int), nullptr>>>(out, used);
    });
}

char const* run_misaligned(float const* in, float* out) {
    return text_of([&] { misaligned<<<1, 1>>>(in, out); });
}

char const* run_places(int* out, int const* grid, int const* block) {
    return text_of([&] {
        places<<<dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2])>>>(out, /* a number */ 1'000);
    });
}

char const* run_product(float* out) {
    return text_of([&] {
        ::product<(3 > 2 ? 5 : 7), (2 << 1) == 4, float><<<1,
                                                           1  // one thread is enough
                                                           >>>(out, 2.5);
    });
}

void exclusive_sum(int64_t* in_and_out, int64_t n) {
    std::size_t bytes = 1;
    char storage[1];
    cub::DeviceScan::ExclusiveSum(storage, bytes, static_cast<int64_t const*>(in_and_out), in_and_out, n);
}

void select_flagged(uint8_t const* flags, int64_t n, unsigned* chosen, int64_t* count) {
    std::size_t bytes = 1;
    char storage[1];
    cub::DeviceSelect::Flagged(storage, bytes, thrust::counting_iterator<unsigned>(0), flags, chosen, count, n);
}
}
