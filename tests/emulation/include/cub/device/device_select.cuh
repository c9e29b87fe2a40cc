// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

namespace cub {

struct DeviceSelect {
    template <class In, class Flags, class Out, class Selected, class Count>
    static cudaError_t Flagged(void* storage, std::size_t& bytes, In in, Flags flags, Out out, Selected selected,
                               Count n, cudaStream_t = nullptr) {
        if (!storage) return bytes = 1, cudaSuccess;
        *selected = 0;
        for (Count k = 0; k < n; ++k)
            if (flags[k]) out[(*selected)++] = in[k];
        return cudaSuccess;
    }
};

}  // namespace cub
