// SPDX-License-Identifier: Apache-2.0
// Adapters for vectors, tracks, random numbers and the split of copies.
#pragma once

#include "../../../kernels/math/actors.cuh"
#include "../../../kernels/math/mcmc_split.cuh"
#include "../../../kernels/math/random.cuh"
#include "types.h"

namespace nurec::testing {

// ---- vec

NUREC_FN V times(D s, V a) {
    return s * a;
}

// ---- actors

NUREC_FN D block_to_track(Array<4> const& starts, D block, D size) {
    int64_t const rows[] = {int64_t(starts.a[0]), int64_t(starts.a[1]), int64_t(starts.a[2]), int64_t(starts.a[3])};
    return D(track_of_block(rows, 4, int64_t(block), int64_t(size)));
}

struct KeyNumbers {
    D before, after, fraction, rate;
};

NUREC_FN KeyNumbers keys(Array<5> const& times, D begin, D end, D ray_moments_of, D time) {
    Keys const found = keys_around(times.a, int64_t(begin), int64_t(end), int64_t(ray_moments_of), time);
    return {D(found.before), D(found.after), found.fraction, found.rate};
}

// ---- random

NUREC_FN Words words_of(Array<4> const& w) {
    return {uint32_t(w.a[0]), uint32_t(w.a[1]), uint32_t(w.a[2]), uint32_t(w.a[3])};
}

NUREC_FN Array<4> numbers_of(Words w) {
    return {{D(w.a), D(w.b), D(w.c), D(w.d)}};
}

template <class T>
NUREC_FN D uniform_by(D word) {
    return uniform_of<T>(uint32_t(word));
}

template <class T>
NUREC_FN V drawn_by(D row, D step, D seed, D stream) {
    Vec3<T> const found = drawn<T>(uint32_t(row), uint32_t(step), uint32_t(seed), uint32_t(stream));
    return {found.x, found.y, found.z};
}

// ---- splits

template <int S>
NUREC_FN Array<S + 1> split_logits_of(Array<S> const& logits, D copies) {
    SplitLogits<D, S> const found = split_logits(logits.a, int(copies));
    Array<S + 1> out;
    for (int s = 0; s < S; ++s) out.a[s] = found.logits[s];
    out.a[S] = found.factor;
    return out;
}

NUREC_FN D alternating_sum_of(D split, D copies) {
    D const x[] = {split};
    D sums[1];
    alternating_sums(int(copies), x, sums);
    return sums[0];
}

}  // namespace nurec::testing
