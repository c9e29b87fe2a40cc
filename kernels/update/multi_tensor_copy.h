// SPDX-License-Identifier: Apache-2.0
// Copies of many arrays, byte by byte, and a few numbers that are arguments. Pointers are those of the driver's device,
// or `into` those of page-locked memory of the host, where a kernel can write.
#pragma once

#include "../common/device.h"

namespace nurec {

constexpr int MAX_COPIES_PER_LAUNCH = 64;  // of a launch, a power of two: as many as fit into the arguments of a kernel
constexpr int MAX_NUMBERS = 64;            // of a launch

struct Copy {
    void* into;
    void const* values;
    int64_t bytes;  // at least 1
};

struct CopyParams {
    int count;  // of the copies
    Copy copies[MAX_COPIES_PER_LAUNCH];
    int numbers;
    float* numbers_at;          // [numbers]
    float values[MAX_NUMBERS];  // which are to lie there
};

namespace cpu {

void multi_tensor_copy(CopyParams const& p);

}  // namespace cpu

namespace cuda {

void multi_tensor_copy(CopyParams const& p, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
