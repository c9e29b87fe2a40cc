// SPDX-License-Identifier: Apache-2.0
// The clock of the device, read by a kernel: recorded work has no other time of its own. On CUDA alone.
#pragma once

#include <cstdint>

#include "../common/device.h"

namespace nurec::cuda {

// Writes the present nanoseconds into `clock` [1].
void begin_clock(int64_t* clock, Queue const& queue);

// Writes the microseconds since then into `elapsed` [1].
void end_clock(int64_t const* clock, float* elapsed, Queue const& queue);

}  // namespace nurec::cuda
