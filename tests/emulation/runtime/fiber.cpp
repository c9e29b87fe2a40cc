// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#include <cstdint>

#if defined(__x86_64__)

// The registers that a function must preserve go onto the stack; glibc's swapcontext asks the kernel for the signal
// mask besides, which takes a hundred times as long.
asm(R"(
.text
.hidden nurec_emulation_switch
.globl nurec_emulation_switch
.type nurec_emulation_switch, @function
nurec_emulation_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size nurec_emulation_switch, . - nurec_emulation_switch
)");
extern "C" void nurec_emulation_switch(void** from, void* to);

namespace emulation {

void Fiber::prepare(char* top, std::size_t, void (*entry)()) {
    auto* stack = reinterpret_cast<void**>(reinterpret_cast<std::uintptr_t>(top) / 16 * 16);
    *--stack = nullptr;  // the return address of `entry`
    *--stack = reinterpret_cast<void*>(entry);
    for (int k = 0; k < 6; ++k) *--stack = nullptr;
    stack_ = stack;
}

void Fiber::switch_to(Fiber& other) {
    nurec_emulation_switch(&stack_, other.stack_);
}

}  // namespace emulation

#else

namespace emulation {

void Fiber::prepare(char* top, std::size_t bytes, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = top - bytes;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
}

void Fiber::switch_to(Fiber& other) {
    swapcontext(&context_, &other.context_);
}

}  // namespace emulation

#endif
