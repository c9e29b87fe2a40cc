// SPDX-License-Identifier: Apache-2.0
// Which instance of the backward kernels a plan picks: the one table of the options split_backward, launch_bounds and
// shared_memory.
#pragma once

namespace nurec::cuda {

// FEW: an image of less than MANY_TILES. MORE: with gradients of its distances (a camera) or of its rays, which a
// training step does not ask for, a kernel keeps more in registers.
enum Sensor { CAMERA, CAMERA_FEW, CAMERA_MORE, LIDAR, LIDAR_MORE };

constexpr int MANY_TILES = 3000;  // of 16x16 pixels: on an H200 one ray a thread is faster at 2726, two at 4212

struct Bounds {
    int threads;     // of a block
    int min_blocks;  // that fit on a multiprocessor: the compiler keeps registers below 65536 / (threads * min_blocks)
    int rays;        // a thread; a tile of 256 rays takes 256 / (threads * rays) blocks
    int ahead;       // Gaussians that a warp looks at together before it goes through those that reach it
};

struct Staging {
    int rows;      // of Gaussians, 80 bytes each, that a block stages at a time
    bool members;  // their indices, too; if not, a warp reads the index where it adds, through L1
};

// Without the options: one thread a ray of the tile, as many rows as threads, as renderBackward_kernel has it.
constexpr Bounds UNBOUND = {256, 1, 1, 1};
constexpr Staging FULL = {256, true};

// launch_bounds: by sensor, chosen among benchmarks/opt/bench_launch_bounds.py's variants without spills on any
// architecture; where another one is faster on one architecture, it gets a table of its own.
constexpr Bounds BOUNDED[] = {
    {128, 6, 2, 1},   // camera: 80 registers; two rays a thread share each row that is read and each sum over the warp
    {256, 4, 1, 1},   // few tiles: 64 registers; the longest tile ends last, and eight warps share it instead of four
    {128, 4, 2, 1},   // with more gradients: 128 registers
    {128, 8, 1, 16},  // lidar: 64 registers; half a cell a block, so that the longest cells take more multiprocessors;
                      // most Gaussians reach no ray of a warp
    {128, 6, 1, 1},   // with more gradients: 80 registers
};

// shared_memory: 10 KB a block instead of 21. Not staged are indices (only contributing rows need them), gradients
// (they stay in registers until a warp has added them up) and rays (each belongs to one thread).
constexpr Staging HALF = {128, false};

template <int THREADS_, int MIN_BLOCKS_, int RAYS_, int ROWS_, bool MEMBERS_, int AHEAD_>
struct Launch {
    static constexpr int THREADS = THREADS_, MIN_BLOCKS = MIN_BLOCKS_, RAYS = RAYS_, ROWS = ROWS_, AHEAD = AHEAD_;
    static constexpr bool MEMBERS = MEMBERS_;
};

constexpr Bounds bounds_of(Sensor sensor, bool bound) {
    return bound ? BOUNDED[sensor] : UNBOUND;
}

constexpr Staging staging_of(bool half) {
    return half ? HALF : FULL;
}

// BOUND and HALVED are the plan's launch_bounds and half_staging.
template <Sensor SENSOR, bool BOUND, bool HALVED>
using LaunchOf =
    Launch<bounds_of(SENSOR, BOUND).threads, bounds_of(SENSOR, BOUND).min_blocks, bounds_of(SENSOR, BOUND).rays,
           staging_of(HALVED).rows, staging_of(HALVED).members, bounds_of(SENSOR, BOUND).ahead>;

}  // namespace nurec::cuda
