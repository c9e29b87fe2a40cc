// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory that nobody waits for: here they are there at once.
#pragma once

#include <cstddef>
#include <cstring>

inline void __pipeline_memcpy_async(void* to, void const* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}

inline void __pipeline_commit() {}

inline void __pipeline_wait_prior(std::size_t) {}
