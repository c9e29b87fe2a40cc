// SPDX-License-Identifier: Apache-2.0
// The lanes of a warp: the waiting ones with their values, and the result of each.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "block.h"

namespace emulation {

struct Meeting {  // of lanes that name the same mask at the same place
    Site site;
    unsigned there;  // lanes that have come
};

struct Warp {
    unsigned alive, ready;  // lanes that have not ended, and of these, those that wait for nobody
    int meetings;
    Meeting meeting[WARP];
    std::uint64_t value[WARP], result[WARP];
    int source[WARP];
};

inline bool same(char const* a, char const* b) {  // nearly always of one address
    return a == b || !std::strcmp(a, b);
}

inline bool same(Site const& a, Site const& b) {
    return a.at.line() == b.at.line() && a.at.column() == b.at.column() && a.mask == b.mask && same(a.name, b.name) &&
           same(a.at.file_name(), b.at.file_name());
}

inline Meeting& meeting_of(Warp& warp, Site const& site) {
    for (int k = 0; k < warp.meetings; ++k)
        if (same(warp.meeting[k].site, site)) return warp.meeting[k];
    return warp.meeting[warp.meetings++] = {site, 0};
}

template <class Function>
std::uint64_t folded(Warp const& warp, unsigned mask, Function const& function) {
    std::uint64_t out = warp.value[std::countr_zero(mask)];
    for (mask &= mask - 1; mask; mask &= mask - 1) out = function(out, warp.value[std::countr_zero(mask)]);
    return out;
}

inline std::uint64_t ballot(Warp const& warp, unsigned mask) {
    std::uint64_t out = 0;
    for (int lane = 0; lane < WARP; ++lane)
        if (mask >> lane & 1 && warp.value[lane]) out |= std::uint64_t(1) << lane;
    return out;
}

inline std::uint64_t of_all(Warp const& warp, unsigned mask, Exchange exchange) {
    using U = std::uint64_t;
    switch (exchange) {
        case Exchange::ADD:
            return folded(warp, mask, [](U a, U b) { return a + b; });
        case Exchange::MIN:
            return folded(warp, mask, [](U a, U b) { return U(std::min(int64_t(a), int64_t(b))); });
        case Exchange::MAX:
            return folded(warp, mask, [](U a, U b) { return U(std::max(int64_t(a), int64_t(b))); });
        case Exchange::AND:
            return folded(warp, mask, [](U a, U b) { return a & b; });
        case Exchange::OR:
            return folded(warp, mask, [](U a, U b) { return a | b; });
        case Exchange::XOR:
            return folded(warp, mask, [](U a, U b) { return a ^ b; });
        default:
            return ballot(warp, mask);
    }
}

inline void exchange_values(Warp& warp, Site const& site, Exchange exchange) {
    bool const give = exchange == Exchange::GIVE;
    std::uint64_t const all = give ? 0 : of_all(warp, site.mask, exchange);
    for (unsigned left = site.mask; left; left &= left - 1) {
        int const lane = std::countr_zero(left);
        warp.result[lane] = give ? warp.value[warp.source[lane]] : all;
    }
}

}  // namespace emulation
