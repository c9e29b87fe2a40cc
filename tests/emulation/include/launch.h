// SPDX-License-Identifier: Apache-2.0
// Functions of the rewritten sources instead of CUDA's own words: launches and shared memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#include "block.h"

struct CUstream_st;
using cudaStream_t = CUstream_st*;

namespace emulation {

constexpr std::size_t STATIC_SHARED = 48 << 10;    // bytes that a block may declare
constexpr std::size_t DEFAULT_SHARED = 48 << 10;   // and at most get in all unless cudaFuncSetAttribute allows more
constexpr std::size_t LARGEST_SHARED = 227 << 10;  // of sm_90

struct Grid {
    Grid(dim3 grid, dim3 block, std::size_t shared = 0, cudaStream_t = nullptr)
        : grid(grid), block(block), shared(shared) {}

    dim3 grid, block;
    std::size_t shared;  // bytes, dynamic
};

// Runs one block after another; Error if CUDA would refuse the launch.
void run_grid(char const* name, void const* kernel, Grid const& grid, std::function<void()> const& thread);

// Dynamic shared memory that a kernel may ask for.
void allow_shared(void const* kernel, std::size_t bytes);

template <class... Parameters, class... Arguments>
void launch(char const* name, Grid const& grid, void (*kernel)(Parameters...), Arguments&&... arguments) {
    std::tuple<Parameters...> const given(std::forward<Arguments>(arguments)...);
    run_grid(name, reinterpret_cast<void const*>(kernel), grid, [&] { std::apply(kernel, given); });
}

// ---- shared memory, whose bytes are 0xff when a block begins: NaN, or -1

extern "C" std::uint64_t nurec_emulated_blocks;  // counts those of all launches
extern unsigned char* const dynamic_shared;

void declare_shared(std::size_t bytes);

// The memory behind one `__shared__` declaration.
template <class T>
struct Shared {
    std::uint64_t block;  // that used it last
    alignas(128) unsigned char bytes[sizeof(T)];

    T& of_block() {
        if (block != nurec_emulated_blocks) {
            declare_shared(sizeof(T));
            std::memset(bytes, 0xff, sizeof(T));
            block = nurec_emulated_blocks;
        }
        return *reinterpret_cast<T*>(bytes);
    }
};

}  // namespace emulation
