// SPDX-License-Identifier: Apache-2.0
// The threads of one block, each a fiber: one runs until it waits for others, then another one does.
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>

#include "vectors.h"

namespace emulation {

constexpr int WARP = 32;           // lanes
constexpr int MAX_THREADS = 1024;  // of a block

// A fault that the hardware hangs on, refuses or leaves undefined; torch raises it as RuntimeError.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Site {  // where threads meet
    char const* name;
    std::source_location at;
    unsigned mask;  // 0: the whole block
};

enum class Exchange { GIVE, BALLOT, ADD, MIN, MAX, AND, OR, XOR };

// Waits until all lanes of the mask stand at the same place. GIVE: the value of lane `source`; else a sum or the like.
std::uint64_t meet_warp(Site const& site, Exchange exchange, std::uint64_t value, int source);

struct Votes {
    int yes, all;
};

// Waits until all threads of the block that have not ended stand at the same barrier.
Votes meet_block(Site const& site, bool vote);

// Ends the kernel with this message.
[[noreturn]] void fail(std::string const& message);

struct Order {                 // of threads that could run
    std::uint64_t random = 0;  // state of the generator; 0: ascending

    unsigned draw();  // 0 unless it is random
};

// Runs all threads of a block: `thread` is called by each; `kernel` and `block` are for messages.
void run_block(char const* kernel, uint3 block, dim3 size, Order& order, std::function<void()> const& thread);

}  // namespace emulation
