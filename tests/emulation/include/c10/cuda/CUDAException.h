// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#define C10_CUDA_CHECK(expression)                                                                        \
    do {                                                                                                  \
        if ((expression) != cudaSuccess) throw emulation::Error("emulated CUDA: " #expression " failed"); \
    } while (false)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() static_cast<void>(0)  // a launch that fails throws
