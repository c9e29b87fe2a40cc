// SPDX-License-Identifier: Apache-2.0
// Gaussians moved with their tracks on the CPU: plain arrays. Letters: A Gaussians, K tracks, M keyframes, Q query
// times.
#pragma once

#include <cstdint>

namespace nurec::cpu {

struct Actors {
    int64_t n, tracks, queries;  // A, K, Q
    float const* means;          // [A, 3] in the frames of their tracks
    float const* quats;          // [A, 4] of any length
    int64_t const* starts;       // [K + 1] rows of track k: starts[k] to starts[k + 1]
    int64_t const* key_offsets;  // [K + 1] keyframes of track k: key_offsets[k] to key_offsets[k + 1], at least one
    double const* key_times;     // [M] seconds, ascending in each track
    float const* translations;   // [M, 3]
    float const* quaternions;    // [M, 4] of any length
    double const* times;         // [Q] seconds
};

struct MovedActors {
    float* means;       // [Q, A, 3] world
    float* quats;       // [Q, A, 4] unit
    float* velocities;  // [Q, A, 3]
    float* rotations;   // [Q, K, 4] unit, of the tracks
};

struct ActorGrads {
    float const *d_means, *d_quats, *d_velocities, *d_rotations;  // of MovedActors
    float *means, *quats, *translations, *quaternions;            // of Actors
};

void move_actors(Actors const& in, MovedActors const& out);
void move_actors_backward(Actors const& in, ActorGrads const& d);

}  // namespace nurec::cpu
