// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>

#include "launch.h"

namespace emulation {
namespace {

constexpr std::size_t CANARY = 256;  // bytes behind dynamic shared memory, to see whether a kernel writes there
constexpr unsigned char UNTOUCHED = 0xa5;

alignas(1024) unsigned char memory[LARGEST_SHARED + CANARY];
std::map<void const*, std::size_t> allowed;
std::size_t declared;  // bytes of the present block

std::uint64_t count(dim3 size) {
    return std::uint64_t(size.x) * size.y * size.z;
}

void check(char const* name, void const* kernel, Grid const& g) {
    auto const refuse = [&](std::string const& why) { throw Error("emulated CUDA: " + (name + (": " + why))); };
    if (!count(g.grid)) refuse("a grid must have blocks");
    if (g.grid.x > 0x7fffffffu || g.grid.y > 0xffffu || g.grid.z > 0xffffu) refuse("the grid has too many blocks");
    if (!count(g.block) || count(g.block) > MAX_THREADS || g.block.z > 64)
        refuse("a block has " + std::to_string(count(g.block)) + " threads, but must have 1 to 1024");
    std::size_t const most = allowed.count(kernel) ? allowed[kernel] : DEFAULT_SHARED;
    if (g.shared > most)
        refuse(std::to_string(g.shared) + " bytes of dynamic shared memory, but cudaFuncSetAttribute allows " +
               std::to_string(most));
}

// Ascending, or, with NUREC_LITE_EMULATION_SEED, blocks and threads in a random order that the seed determines.
Order order_of_threads() {
    char const* const seed = std::getenv("NUREC_LITE_EMULATION_SEED");
    std::uint64_t const number = seed ? std::strtoull(seed, nullptr, 10) : 0;
    return {number * 0x9e3779b97f4a7c15u};
}

void check_canary(char const* name, std::size_t shared) {
    unsigned char const* const end = memory + shared;
    if (std::any_of(end, end + CANARY, [](unsigned char c) { return c != UNTOUCHED; }))
        throw Error(std::string("emulated CUDA: ") + name + " writes behind its dynamic shared memory");
}

void run_one(char const* name, Grid const& g, std::uint64_t number, Order& order, std::function<void()> const& thread) {
    std::uint64_t const row = number / g.grid.x;
    blockIdx = {unsigned(number % g.grid.x), unsigned(row % g.grid.y), unsigned(row / g.grid.y)};
    ++nurec_emulated_blocks;
    declared = g.shared;
    std::memset(memory, 0xff, g.shared);
    std::memset(memory + g.shared, UNTOUCHED, CANARY);
    run_block(name, blockIdx, g.block, order, thread);
    check_canary(name, g.shared);
}

}  // namespace

std::uint64_t nurec_emulated_blocks = 0;
unsigned char* const dynamic_shared = memory;

void declare_shared(std::size_t bytes) {
    declared += bytes;
    if (declared > LARGEST_SHARED) fail(std::to_string(declared) + " bytes of shared memory");
}

void allow_shared(void const* kernel, std::size_t bytes) {
    if (bytes > LARGEST_SHARED) throw Error("emulated CUDA: no kernel may have " + std::to_string(bytes) + " bytes");
    allowed[kernel] = bytes;
}

void run_grid(char const* name, void const* kernel, Grid const& g, std::function<void()> const& thread) {
    static std::mutex one_at_a_time;
    std::lock_guard const lock(one_at_a_time);
    check(name, kernel, g);
    blockDim = g.block, gridDim = g.grid;
    Order order = order_of_threads();
    std::uint64_t const n = count(g.grid), first = order.draw() % n;
    std::uint64_t step = 1 + order.draw() % n;
    while (std::gcd(step, n) != 1) ++step;
    for (std::uint64_t k = 0, number = first; k < n; ++k, number = (number + step) % n)
        run_one(name, g, number, order, thread);
}

}  // namespace emulation
