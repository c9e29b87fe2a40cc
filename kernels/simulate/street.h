// SPDX-License-Identifier: Apache-2.0
// The simulator's street, and arguments of its sensors. Pointers are those of the driver's device.
// nurec_lite/capture/simulate is the specification; T is float for images and double for ranges. Letters: P solids, M
// nodes, K owners (moving cars, and last the world), S times, n pixels or rays.
#pragma once

#include <cstdint>

#include "../common/device.h"

namespace nurec {

constexpr int FACES = 8;  // planes of a hull

template <class T>
struct Solid {
    T planes[FACES][4];  // in the owner's frame: normal and offset
    T frame[3][4];       // the solid's own frame from its owner's
    T half[3];           // half the size, metres
    T colour[3], trim[3];
};

struct SolidKind {
    int32_t faces;  // planes in use; 0: an ellipsoid
    int32_t material;
    int32_t owner;
};

template <class T>
struct Box {
    T low[3], high[3];
};

// A node of the tree over the boxes of the world's solids; node 0 is the root. The children of an inner node are the
// next node and `first`.
struct Node {
    int32_t first;  // of a leaf: its first entry of `order`
    int32_t count;  // entries of a leaf; 0: an inner node
};

struct RowRange {
    int32_t begin, end;
};

template <class T>
struct Street {
    Solid<T> const* solids;    // [P], 0 is the ground
    SolidKind const* kinds;    // [P]
    Box<T> const* boxes;       // [M]
    Node const* nodes;         // [M]
    int64_t n_nodes;           // M; 0: ground alone
    int32_t const* order;      // rows of solids, in the order of the leaves
    RowRange const* cars;      // [K - 1] rows of each moving car's solids
    T const* reach;            // [K - 1] metres: radius of a sphere about a car's origin that holds the car
    int64_t owners;            // K
    double const* rotations;   // [S, 3, 3] of the sensor, to the world
    double const* positions;   // [S, 3]
    T const* owner_rotations;  // [S, K, 3, 3] to the world
    T const* owner_positions;  // [S, K, 3]
    T spread;                  // radians between neighbouring rays
    uint32_t seed;
};

struct Tone {
    float gain[3], offset[3];
    float noise;      // standard deviation, of full scale
    uint32_t prefix;  // hash of the keys before the number of a value
};

struct PixelParams {
    int64_t n, first;          // pixels, and the index of the first one in its image
    int64_t samples;           // rays a pixel
    double const* directions;  // [n, samples, 3] unit, sensor frame
    int64_t const* slots;      // [n] index of the time, below S
    Tone const* tone;
    uint8_t* pixels;  // [n, 3]
};

struct EchoParams {
    int64_t n;
    double const* directions;  // [n, 3] unit, sensor frame
    int64_t const* slots;      // [n]
    double* echoes;            // [n, 2] metres (infinite: nothing), intensity
};

namespace cpu {

void simulate_pixels(Street<float> const& street, PixelParams const& p);
void simulate_echoes(Street<double> const& street, EchoParams const& p);

}  // namespace cpu

namespace cuda {

void simulate_pixels(Street<float> const& street, PixelParams const& p, Queue const& queue);
void simulate_echoes(Street<double> const& street, EchoParams const& p, Queue const& queue);

}  // namespace cuda
}  // namespace nurec
