// SPDX-License-Identifier: Apache-2.0
// Handlers of -fsanitize=alignment,bounds: an index lies outside of its array, such as one in shared memory, or an
// address is not on the multiple that its type asks for. A GPU refuses the load of such a float4.
#include "block.h"

namespace {

struct Place {  // first fields of GCC's and Clang's records of either kind
    char const* file;
    std::uint32_t line, column;
};

[[noreturn]] void stop(void const* record, std::string const& what) {
    auto const* const at = static_cast<Place const*>(record);
    emulation::fail(what + " (" + at->file + ":" + std::to_string(at->line) + ")");
}

}  // namespace

extern "C" {

[[noreturn]] void __ubsan_handle_out_of_bounds_abort(void* record, void* index) {
    stop(record, "index " + std::to_string(reinterpret_cast<std::intptr_t>(index)) + " lies outside of the array");
}

[[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(void* record, void* address) {
    stop(record, "an address is not aligned: its last digit is " +
                     std::to_string(reinterpret_cast<std::uintptr_t>(address) % 16));
}
}
