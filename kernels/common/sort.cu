// SPDX-License-Identifier: Apache-2.0
// A file of its own: CUB's headers take longer to compile than all other kernels together.
#include "sort.h"

#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <thrust/iterator/counting_iterator.h>

namespace nurec::cuda {
namespace {

// Calls a CUB function twice, as CUB wants it: for the size of its storage, and to run.
template <class Function>
void with_storage(Queue const& queue, Function const& function) {
    std::size_t bytes = 0;
    function(nullptr, bytes);
    function(queue.memory.array<char>(static_cast<int64_t>(bytes)), bytes);
}

}  // namespace

void exclusive_sum(int64_t const* in, int64_t* out, int64_t n, Queue const& queue) {
    with_storage(queue, [&](void* storage, std::size_t& bytes) {
        cub::DeviceScan::ExclusiveSum(storage, bytes, in, out, n, queue.stream);
    });
}

void select_flagged(uint8_t const* flags, int64_t n, uint32_t* index, int64_t* count, Queue const& queue) {
    thrust::counting_iterator<uint32_t> const all(0);
    with_storage(queue, [&](void* storage, std::size_t& bytes) {
        cub::DeviceSelect::Flagged(storage, bytes, all, flags, index, count, n, queue.stream);
    });
}

}  // namespace nurec::cuda
