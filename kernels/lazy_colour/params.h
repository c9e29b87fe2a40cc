// SPDX-License-Identifier: Apache-2.0
// Harmonics whose Gaussians take steps of Adam when somebody looks at them, not when they are made: all that they have
// missed, one after another, so that the numbers are those of Gaussians that take every step. Pointers are those of the
// device. Letters: N Gaussians, S coefficients.
#pragma once

#include "../math/adam.cuh"
#include "../view_colour/params.h"

namespace nurec::cuda {

// Every Gaussian is looked at within so many steps, seen or not, so the factors of twice as many are enough.
constexpr int ROUND = 64, RING = 2 * ROUND;

// One array of coefficients with Adam's moments of it.
struct Moving {
    float *value, *first, *second;
};

struct LazyHarmonics {
    int64_t n, s;  // s: 1, 4, 9 or 16
    Moving sh;     // [N, 1, 3]
    Moving rest;   // [N, S - 1, 3]
};

// Of two arrays, those of a step.
struct StepFactors {
    AdamFactors<float> sh, rest;
};

// A Gaussian has taken `taken` steps. The gradient of the next one is basis(directions) x colours, and those behind it
// have none. Where `taken` is the number of all steps, colours are 0.
struct LazySteps {
    int* taken;            // [N]
    float* directions;     // [N, 3] unit
    float* colours;        // [N, 3]
    StepFactors* factors;  // [RING] of step t at t % RING
    float* steps[2];       // [] each: how many steps there are, as Adam counts them for either array
    AdamBetas<float> betas;
};

// All take all steps.
void settle_harmonics(LazyHarmonics const& sh, LazySteps const& steps, Queue const& queue);

// Those that are seen take all steps, and so does a share of the others; then the colours of those seen, 0 of others.
void lazy_colour(Placements const& in, uint8_t const* seen, LazyHarmonics const& sh, LazySteps const& steps,
                 float* colour, Queue const& queue);

// Ends a step: it counts, with these rates [2], or, if `failed` is not null and not 0, what it left is forgotten.
void end_lazy_step(int64_t n, LazySteps const& steps, float const* const (&rates)[2], float const* failed, double first,
                   double second, Queue const& queue);

}  // namespace nurec::cuda
