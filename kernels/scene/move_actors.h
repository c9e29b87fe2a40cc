// SPDX-License-Identifier: Apache-2.0
// Gaussians moved with their tracks. Pointers are those of the driver's device. Letters: A Gaussians, K tracks, M
// keyframes, Q query times. A track without keyframes stands at the origin, not turned.
#pragma once

#include "../common/device.h"

namespace nurec {

struct Actors {
    int64_t n, tracks, keys, queries;  // A, K, M, Q
    float const* means;                // [A, 3] in the frames of their tracks
    float const* quats;                // [A, 4] unit, on a multiple of 16 bytes (CUDA)
    int64_t const* starts;             // [K + 1] rows of track k: starts[k] to starts[k + 1]
    int64_t const* key_offsets;        // [K + 1] keyframes of track k: key_offsets[k] to key_offsets[k + 1]
    double const* key_times;           // [M] seconds, ascending in each track
    float const* translations;         // [M, 3]
    float const* quaternions;          // [M, 4] of any length, on a multiple of 16 bytes (CUDA)
    double const* times;               // [Q] seconds
};

struct MovedActors {
    float* means;       // [Q, A, 3] world
    float* quats;       // [Q, A, 4] unit
    float* velocities;  // [Q, A, 3]
    float* rotations;   // [Q, K, 4] unit, of the tracks
};

struct ActorGrads {
    // of MovedActors; quats and rotations on 16 bytes (CUDA)
    float const *d_means, *d_quats, *d_velocities, *d_rotations;
    float *means, *quats, *translations, *quaternions;  // of Actors
};

namespace cpu {

void move_actors(Actors const& in, MovedActors const& out);
void move_actors_backward(Actors const& in, ActorGrads const& d);

}  // namespace cpu

namespace cuda {

void move_actors(Actors const& in, MovedActors const& out, Queue const& queue);
void move_actors_backward(Actors const& in, ActorGrads const& d, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
