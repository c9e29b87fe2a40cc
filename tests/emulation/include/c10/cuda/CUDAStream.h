// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

namespace c10::cuda {

inline cudaStream_t getCurrentCUDAStream() {
    return nullptr;
}

}  // namespace c10::cuda
