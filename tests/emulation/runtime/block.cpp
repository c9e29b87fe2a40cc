// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <sys/mman.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <sstream>

#include "fiber.h"
#include "warp.h"

namespace emulation {
namespace {

constexpr std::size_t STACK = 1 << 16, GUARD = 1 << 12;  // bytes; a thread that needs more than its stack crashes

struct Barrier {
    Site site;
    int there;
    bool same;  // all of them wait at one and the same
    Votes votes, result;
};

struct Block {
    char const* kernel;
    uint3 index;
    dim3 size;
    int threads, ended, warps, current;
    Order* order;
    std::function<void()> const* thread;
    std::string error;
    Barrier barrier;
    Warp warp[MAX_THREADS / WARP];
    uint3 place[MAX_THREADS];  // threadIdx of each
    Site site[MAX_THREADS];    // where it came to wait last
    Fiber fiber[MAX_THREADS], host;
};

Block block;

// ---- messages

std::string place() {
    std::ostringstream out;
    out << "emulated CUDA: " << block.kernel << ", block (" << block.index.x << ", " << block.index.y << ", "
        << block.index.z << ")";
    return out.str();
}

std::string described(Site const& site) {
    std::ostringstream out;
    out << site.name;
    if (site.mask) out << " of mask 0x" << std::hex << site.mask << std::dec;
    out << " (" << site.at.file_name() << ":" << site.at.line() << ")";
    return out.str();
}

// "0-31, 64"
std::string ranges(std::string const& numbers) {
    std::istringstream in(numbers);
    std::ostringstream out;
    int first = -1, last = -1, next;
    auto const close = [&] {
        if (first < 0) return;
        out << (out.tellp() > 0 ? ", " : "") << first;
        if (last > first) out << "-" << last;
    };
    while (in >> next) {
        if (next != last + 1 || first < 0) close(), first = next;
        last = next;
    }
    close();
    return out.str();
}

std::string deadlock() {
    std::map<std::string, std::string> by_place;
    for (int t = 0; t < block.threads; ++t) {
        bool const alive = block.warp[t / WARP].alive >> t % WARP & 1;
        by_place[alive ? "wait at " + described(block.site[t]) : "have ended"] += std::to_string(t) + " ";
    }
    std::string out = place() + ": threads wait for one another for ever:";
    for (auto const& [what, threads] : by_place) out += " threads " + ranges(threads) + " " + what + ";";
    out.back() = '.';
    return out;
}

// ---- switching

bool runs(int warp) {
    return warp >= 0 && block.warp[warp].ready;
}

// Any lane that is ready, the present warp's first: its stacks are in the cache. -1: none.
int next_thread() {
    int warp = block.current / WARP;
    if (!runs(warp)) {
        unsigned const skip = 1 + block.order->draw() % unsigned(block.warps);
        int k = 0;
        while (k < block.warps && !runs(int(warp + skip + k) % block.warps)) ++k;
        if (k == block.warps) return -1;
        warp = int(warp + skip + k) % block.warps;
    }
    int const turn = (block.current + 1 + int(block.order->draw())) % WARP;
    return WARP * warp + (std::countr_zero(std::rotr(block.warp[warp].ready, turn)) + turn) % WARP;
}

uint3 index_of(int thread) {
    unsigned const t = unsigned(thread), x = block.size.x, y = block.size.y;
    return {t % x, t / x % y, t / (x * y)};
}

Fiber& chosen() {
    int const next = next_thread();
    if (next < 0) {
        if (block.error.empty() && block.ended < block.threads) block.error = deadlock();
        return block.host;
    }
    block.current = next;
    threadIdx = block.place[next];
    return block.fiber[next];
}

void yield() {
    Fiber& own = block.fiber[block.current];
    Fiber& next = chosen();
    if (&next != &own) own.switch_to(next);
}

void open_barrier() {
    Barrier& b = block.barrier;
    if (!b.there || !b.same || b.there + block.ended < block.threads) return;
    b.result = b.votes, b.there = 0;
    for (int w = 0; w < block.warps; ++w) block.warp[w].ready = block.warp[w].alive;
}

void run_thread() {
    (*block.thread)();
    Warp& warp = block.warp[block.current / WARP];
    unsigned const bit = 1u << block.current % WARP;
    warp.alive &= ~bit, warp.ready &= ~bit;
    ++block.ended;
    open_barrier();
    yield();
    __builtin_unreachable();
}

// ---- a block

char* stacks() {
    static char* const memory = [] {
        std::size_t const bytes = MAX_THREADS * STACK;
        void* const all = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) throw std::bad_alloc();
        for (std::size_t k = 0; k < MAX_THREADS; ++k) mprotect(static_cast<char*>(all) + k * STACK, GUARD, PROT_NONE);
        return static_cast<char*>(all);
    }();
    return memory;
}

void prepare_thread(int t) {
    Warp& warp = block.warp[t / WARP];
    if (t % WARP == 0) warp.alive = 0, warp.meetings = 0;
    warp.alive |= 1u << t % WARP;
    warp.ready = warp.alive;
    block.place[t] = index_of(t);
    // Not all at the same distance from a page: the innermost cache would hold few of them.
    char* const top = stacks() + (t + 1) * STACK - 576 * (t % 14);
    block.fiber[t].prepare(top, STACK / 2, &run_thread);
}

}  // namespace

unsigned Order::draw() {
    if (!random) return 0;
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    return unsigned(random >> 40);
}

// A function of its own: texts would take room on every thread's stack, and the innermost cache would hold few of them.
[[noreturn, gnu::noinline, gnu::cold]] void fail_lane(Site const& site, int lane, int source) {
    if (!(site.mask >> lane & 1))
        fail("lane " + std::to_string(lane) + " calls " + described(site) + ", which lacks it");
    fail("lane " + std::to_string(lane) + " reads lane " + std::to_string(source) + " at " + described(site) +
         ", which lacks that lane");
}

std::uint64_t meet_warp(Site const& site, Exchange exchange, std::uint64_t value, int source) {
    int const lane = block.current % WARP;
    Warp& warp = block.warp[block.current / WARP];
    if (!(site.mask >> lane & site.mask >> source & 1)) fail_lane(site, lane, source);
    warp.value[lane] = value, warp.source[lane] = source;
    Meeting& meeting = meeting_of(warp, site);
    meeting.there |= 1u << lane;
    if (meeting.there == site.mask) {
        exchange_values(warp, site, exchange);
        meeting = warp.meeting[--warp.meetings];
        warp.ready |= site.mask;
        return warp.result[lane];
    }
    warp.ready &= ~(1u << lane);
    block.site[block.current] = site;
    yield();
    return warp.result[lane];
}

Votes meet_block(Site const& site, bool vote) {
    Barrier& b = block.barrier;
    if (!b.there) b.site = site, b.same = true, b.votes = {0, 0};
    b.same = b.same && same(b.site, site);
    b.votes.yes += vote, ++b.votes.all, ++b.there;
    block.site[block.current] = site;
    block.warp[block.current / WARP].ready &= ~(1u << block.current % WARP);
    open_barrier();
    yield();
    return b.result;
}

void fail(std::string const& message) {
    if (!block.thread) std::fprintf(stderr, "emulated CUDA, outside of kernels: %s\n", message.c_str()), std::abort();
    block.error = place() + ", thread " + std::to_string(block.current) + ": " + message;
    block.fiber[block.current].switch_to(block.host);
    __builtin_unreachable();
}

void run_block(char const* kernel, uint3 index, dim3 size, Order& order, std::function<void()> const& thread) {
    block.kernel = kernel, block.index = index, block.size = size, block.order = &order, block.thread = &thread;
    block.threads = int(size.x * size.y * size.z), block.warps = (block.threads + WARP - 1) / WARP, block.ended = 0;
    block.barrier.there = 0, block.error.clear();
    for (int t = 0; t < block.threads; ++t) prepare_thread(t);
    block.current = WARP * int(order.draw() % unsigned(block.warps)) + WARP - 1;  // so that thread 0 comes first
    block.host.switch_to(chosen());
    block.thread = nullptr;
    if (!block.error.empty()) throw Error(block.error);
}

}  // namespace emulation
