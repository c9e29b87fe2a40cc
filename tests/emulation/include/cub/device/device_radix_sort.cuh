// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace cub {

struct DeviceRadixSort {
    // By bits begin to end of the keys; stable.
    template <class Key, class Value, class Count>
    static cudaError_t SortPairs(void* storage, std::size_t& bytes, Key const* keys, Key* sorted_keys,
                                 Value const* values, Value* sorted, Count n, int begin = 0, int end = 8 * sizeof(Key),
                                 cudaStream_t = nullptr) {
        if (!storage) return bytes = 1, cudaSuccess;
        static_assert(std::is_unsigned_v<Key>);
        auto const of = [&](Key key) {
            return (key >> begin) & (Key(~Key(0)) >> (8 * int(sizeof(Key)) - (end - begin)));
        };
        std::vector<std::size_t> order(n);
        std::iota(order.begin(), order.end(), std::size_t(0));
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return of(keys[a]) < of(keys[b]); });
        for (std::size_t k = 0; k < order.size(); ++k) sorted_keys[k] = keys[order[k]], sorted[k] = values[order[k]];
        return cudaSuccess;
    }
};

}  // namespace cub
