// SPDX-License-Identifier: Apache-2.0
// A thread of control with a stack of its own, which runs until it switches to another one.
#pragma once

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <cstddef>

namespace emulation {

class Fiber {
  public:
    // To run `entry`, which must not return, on the stack that ends at `top` when it is first switched to.
    void prepare(char* top, std::size_t bytes, void (*entry)());
    void switch_to(Fiber& other);

  private:
#if defined(__x86_64__)
    void* stack_ = nullptr;  // where its registers lie while it does not run
#else
    ucontext_t context_ = {};
#endif
};

}  // namespace emulation
