// SPDX-License-Identifier: Apache-2.0
// A block of threads takes a block of the store and one array, in the order of memory, in vectors of four where both
// places allow it.
#include "../common/visible.cuh"
#include "block_copy.h"

namespace nurec::cuda {
namespace {

__device__ float times(float a, float factor) {
    return factor * a;
}

__device__ float4 times(float4 a, float factor) {
    return {factor * a.x, factor * a.y, factor * a.z, factor * a.w};
}

// Copies `count` numbers or vectors of four; T: float or float4.
template <bool PACK, class T>
__device__ void copy_row(float* rows, float* packed, float factor, int count) {
    T* const a = reinterpret_cast<T*>(rows);
    T* const b = reinterpret_cast<T*>(packed);
    for (int j = int(threadIdx.x); j < count; j += THREADS) {
        if constexpr (PACK)
            b[j] = times(a[j], factor);
        else
            a[j] = b[j];
    }
}

template <bool PACK>
__global__ void __launch_bounds__(THREADS) copy_blocks_kernel(BlockCopies p) {
    BlockCopy const& c = p.copies[blockIdx.y];
    int64_t const listed = p.blocks.count(p.n), count = listed < p.capacity ? listed : p.capacity;
    int64_t const each = BLOCK_GAUSSIANS * c.width, all = p.n * c.width;
    for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
        int64_t const begin = p.blocks.first(k) * c.width, left = all - begin;
        int const numbers = int(left < each ? left : each);
        float* const rows = c.rows + begin;
        float* const packed = c.packed + k * each;
        if (c.vectors && numbers % 4 == 0)
            copy_row<PACK, float4>(rows, packed, c.factor, numbers / 4);
        else
            copy_row<PACK, float>(rows, packed, c.factor, numbers);
    }
}

template <bool PACK>
void copy_blocks(BlockCopies const& p, Queue const& queue) {
    if (!p.count || !p.capacity || !p.n) return;
    int64_t const most = BLOCKS_PER_MULTIPROCESSOR * multiprocessors();
    dim3 const grid(unsigned(p.capacity < most ? p.capacity : most), unsigned(p.count));
    copy_blocks_kernel<PACK><<<grid, THREADS, 0, queue.stream>>>(p);
}

}  // namespace

void pack_blocks(BlockCopies const& p, Queue const& queue) {
    copy_blocks<true>(p, queue);
}

void unpack_blocks(BlockCopies const& p, Queue const& queue) {
    copy_blocks<false>(p, queue);
}

}  // namespace nurec::cuda
