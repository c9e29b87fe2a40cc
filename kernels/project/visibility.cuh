// SPDX-License-Identifier: Apache-2.0
// Visibility of Gaussians: whether a view may see them, their bounds, and their depth keys.
#pragma once

#include "candidates.cuh"
#include "../common/cells.cuh"
#include "../common/gaussians.cuh"
#include "../common/launch.cuh"
#include "../common/sort.h"
#include "../common/warp.cuh"
#include "../math/depth.cuh"
#include "../math/lens.cuh"
#include "../math/outline.cuh"
#include "gaussian_row.cuh"
#include "project.h"

namespace nurec::cuda {

// Returns whether a sphere about a point, seen from the sensor, touches a cell that holds a ray.
__device__ inline bool near_rays(Cells const& cells, int const* table, Vec3<float> p, float radius) {
    float const depth = sqrtf(dot(p, p)), azimuth = angle_of(p.y, p.x), elevation = elevation_of(p);
    float const angle = asinf(fminf(1.2f * radius / fmaxf(depth, 1e-6f), 1.f));
    float around = 1.2f * angle / fmaxf(cosf(fabsf(elevation) + angle), 1e-6f);  // beyond a pole, all around
    around = angle > 1 ? float(PI) : fminf(around, float(PI));
    int const n = int(cells.columns), width = 3 * n + 1;
    // within the table also where a mean is NaN
    int const first = min(max(column_of(cells, azimuth - around) + n - 1, 0), 3 * n);
    int const last = min(max(column_of(cells, azimuth + around) + n + 2, 0), 3 * n);
    Bands const bands = bands_of(cells, elevation - 1.2f * angle, elevation + 1.2f * angle);
    int const *const low = table + width * bands.low, *const high = table + width * (bands.high + 1);
    return high[last] - low[last] - high[first] + low[first] > 0;
}

// A camera with the lens of its CameraModel; others give a Lens<float>.
struct OwnLens {};

__device__ inline bool in_cone_of(View<float> const& view, OwnLens, Vec3<float> p, float radius) {
    return in_cone(view.camera, p, radius);
}

__device__ inline bool in_cone_of(View<float> const&, Lens<float> const& lens, Vec3<float> p, float radius) {
    return in_lens_cone(lens, p, radius);
}

__device__ inline Bounds<float> bounds_of(View<float> const& view, OwnLens, Vec3<float> mean, Quat<float> q,
                                          Vec3<float> s, Vec3<float> v, float reach) {
    return camera_bounds(view.camera, view.motion, mean, q, s, v, reach);
}

__device__ inline Bounds<float> bounds_of(View<float> const& view, Lens<float> const& lens, Vec3<float> mean,
                                          Quat<float> q, Vec3<float> s, Vec3<float> v, float reach) {
    return lens_bounds(view.camera, lens, view.motion, mean, q, s, v, reach);
}

__device__ inline float depth_in(View<float> const& view, OwnLens, Vec3<float> mean) {
    return dot(mean, view.forward);
}

__device__ inline float depth_in(View<float> const& view, Lens<float> const& lens, Vec3<float> mean) {
    return lens_depth(lens, mean, view.forward);
}

// CAMERA: the sensor. Each sensor has its own kernel, because a camera's needs fewer registers.
template <bool CAMERA, class LensType>
__device__ bool may_see(ProjectParams const& p, View<float> const& view, int const* occupied, Vec3<float> mean,
                        Vec3<float> s, Vec3<float> v, float reach, LensType const& lens) {
    Vec3<float> const local = view.motion.at(mean, {0, 0, 0}, 0.5f);
    float radius = reach * fmaxf(s.x, fmaxf(s.y, s.z)) + 0.5f * view.motion.seconds * sqrtf(dot(v, v));
    radius += 0.5f * (view.travel + view.turning * sqrtf(dot(local, local)));
    return CAMERA ? in_cone_of(view, lens, local, radius) : near_rays(p.cells, occupied, local, radius);
}

// Stores the outline that lists of an image are made from.
__device__ inline void store_outline(View<float> const& view, OwnLens, Vec3<float> mean, Quat<float> q, Vec3<float> s,
                                     Vec3<float> v, float reach, float* outline) {
    *reinterpret_cast<Outline<float>*>(outline) = outline_of(view, mean, q, s, v, reach);
}

// Stores that there is none: lists are made by bounds.
__device__ inline void store_outline(View<float> const&, Lens<float> const&, Vec3<float>, Quat<float>, Vec3<float>,
                                     Vec3<float>, float, float* outline) {
    *reinterpret_cast<Outline<float>*>(outline) = {};
}

// Stores the row that a lidar's rays read, and its lists test.
__device__ inline void store_row(ProjectParams const& p, int64_t i, Frame<float> const& frame, float opacity,
                                 float* row) {
    float const features[] = {p.features[2 * i], p.features[2 * i + 1]};
    *reinterpret_cast<GaussianRow<true, 2>*>(row) =
        make_gaussian_row<true>(frame_on<true>(p.path, frame), opacity, features);
}

// Stores the warp tiles of a lidar that a Gaussian may hit; returns their number.
__device__ inline int store_candidates(WarpTiles const& warp_tiles, Bounds<float> const& bounds, Visibility const& out,
                                       int64_t k) {
    Candidates c = sweep_candidates(warp_tiles, bounds);
    int const n = count_candidates(warp_tiles, c);
    out.counts[k] = n;
    if (n) out.candidates[k] = c;
    return n;
}

// Finds the visible ones of a block's Gaussians, first to first + THREADS - 1 of n. All its threads call it. Those that
// may be seen are compacted, so that all lanes of a warp have bounds to find, or none. Their places in `out` begin at
// `number`. SHORT: keys of fewer bits than DEPTH_BITS. LISTS: the shapes that lists of warp tiles need are stored.
template <bool CAMERA, bool SHORT, bool LISTS, class Opacity, class LensType = OwnLens>
__device__ void find_visible_in_block(ProjectParams const& p, View<float> const& view, int const* occupied,
                                      int64_t first, Opacity const& opacity, Visibility const& out, int64_t number,
                                      LensType const& lens = {}) {
    __shared__ int seen[THREADS], n_seen;
    int64_t const i = first + threadIdx.x;
    if (threadIdx.x == 0) n_seen = 0;
    __syncthreads();
    float const reach_here = i < p.g.n ? reach_of(opacity(i)) : 0;
    bool const mine = reach_here > 0 && may_see<CAMERA>(p, view, occupied, mean_of(p.g, i), load3(p.g.scales, i),
                                                        velocity_of(p.g, i), reach_here, lens);
    if (i < p.g.n) out.visible[number + i] = mine;
    if (i < p.g.n && !mine) out.keys[number + i] = UNWANTED;
    int const place = counted(mine, &n_seen);
    if (mine) seen[place] = int(threadIdx.x);
    __syncthreads();
    if (int(threadIdx.x) >= n_seen) return;
    int64_t const k = first + seen[threadIdx.x];
    Vec3<float> const mean = mean_of(p.g, k), s = load3(p.g.scales, k), v = velocity_of(p.g, k);
    Quat<float> const q = quat_of(p.g, k);
    float const reach = reach_of(opacity(k));
    float* const shape = LISTS && out.shapes ? out.shapes + shape_floats(CAMERA) * (number + k) : nullptr;
    if (LISTS && CAMERA) store_outline(view, lens, mean, q, s, v, reach, shape);
    if (LISTS && !CAMERA && shape) store_row(p, k, make_frame(mean, q, s, v), opacity(k), shape);
    Bounds<float> const bounds = CAMERA ? bounds_of(view, lens, mean, q, s, v, reach)
                                        : lidar_bounds(view.lidar, view.motion, mean, q, s, v, reach);
    bool listed = true;
    if (LISTS && !CAMERA)
        listed = store_candidates(p.warp_tiles, bounds, out, number + k);
    else
        out.bounds[number + k] = bounds;
    float const depth = CAMERA ? depth_in(view, lens, mean) : sqrtf(dot(mean, mean));
    out.keys[number + k] = !listed ? UNWANTED : SHORT ? short_depth_key(depth, out.bits) : depth_key(depth);
}

}  // namespace nurec::cuda
