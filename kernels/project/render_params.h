// SPDX-License-Identifier: Apache-2.0
// Blending of each tile's Gaussians over its rays, and its gradients. Pointers are those of the driver's device.
//
// Letters: N Gaussians, R rays, A tiles of P rays, L entries of all tiles' lists, C features.
#pragma once

#include "../common/blocks.h"
#include "../common/device.h"
#include "../common/gaussians.h"
#include "../math/rays.cuh"

namespace nurec {

constexpr int MAX_FEATURES = 3;  // a camera's colour; a lidar has two, intensity and ray drop

struct RenderParams {
    Gaussians g;
    int64_t n_features, n_rays, n_tiles, rays_per_tile;
    float const* features;          // [N, C]
    float const* origins;           // [R, 3] relative to the centre; null: warp tiles without gradients of rays
    float const* directions;        // [R, 3] unit
    float const* delays;            // [R] seconds after the Gaussians' time
    float const* targets;           // [R, 2] as math/blend.cuh has them; null: none
    int64_t const* rays;            // [A, P], -1 where a tile has fewer than P
    int64_t const* offsets;         // [A + 1]
    int64_t const* gaussians;       // [L] nearest first in each tile; not for warp tiles
    int const* members;             // [L] the same for warp tiles
    bool moving;                    // origins or delays are not all zero
    Trajectory<float> const* path;  // of the sensor
    uint8_t const* visible;         // [N] 0: in no list; null: not known
    VisibleBlocks blocks;           // Gaussians of others are in no list, and have no `visible`
};

// The backward pass only reads them, and has no need of the median.
struct RenderOutputs {
    float* features;       // [R, C] sum of w times feature
    float* distance;       // [R] sum of w t; with targets, of w times the range residual
    float* transmittance;  // [R]
    float* median;         // [R] t where T crosses 0.5; 0 if it does not
};

// Each zero at the start.
struct RenderGrads {
    float const* d_features;  // of the outputs
    float const* d_distance;  // null, with a plan that splits: nothing depends on it
    float const* d_transmittance;
    GaussianGrads g;
    float* features;
    float* origins;  // null, and the next: rays get no gradient
    float* directions;
};

namespace cuda {

// Returns the floats of a GaussianRow (gaussian_row.cuh), which is read as vectors of four.
constexpr int64_t gaussian_row_floats(bool moving, int64_t n_features) {
    return moving && n_features == 3 ? 20 : 16;
}

constexpr int TILE_RAYS = 256;  // threads of a block, one a ray: rays of a tile at most

}  // namespace cuda
}  // namespace nurec
