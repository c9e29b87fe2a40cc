// SPDX-License-Identifier: Apache-2.0
// The operators torch.ops.nurec_lite.*; nurec_lite/native/ops.py gives them gradients and fake kernels.
#include <torch/library.h>

TORCH_LIBRARY(nurec_lite, m) {
    // `trajectory` [14] on the host; `fractions` [R], or [1] of all rays.
    m.def(
        "rays(Tensor trajectory, Tensor directions, Tensor fractions) "
        "-> (Tensor origins, Tensor world, Tensor delays)");
    m.def(
        "project(Tensor still_means, Tensor still_quats, Tensor means, Tensor quats, Tensor velocities, Tensor scales, "
        "Tensor opacities, Tensor view, Tensor directions, Tensor edges, int columns, float[] centre=[]) "
        "-> (Tensor index, Tensor low, Tensor high)");
    // Of all N, the hidden ones last, with bounds that hold nothing: what depends on no number that only the device
    // knows.
    m.def(
        "project_all(Tensor still_means, Tensor still_quats, Tensor means, Tensor quats, Tensor velocities, "
        "Tensor scales, Tensor opacities, Tensor view, Tensor directions, Tensor edges, int columns, float[] "
        "centre=[]) "
        "-> (Tensor index, Tensor low, Tensor high)");
    m.def(
        "tile_camera(Tensor low, Tensor high, Tensor index, int width, int height, int tile) "
        "-> (Tensor offsets, Tensor gaussians)");
    m.def(
        "tile_lidar(Tensor low, Tensor high, Tensor index, Tensor directions, Tensor edges, int columns, int max_rays) "
        "-> (Tensor rays, Tensor offsets, Tensor gaussians)");
    // Lists of at most `room` entries; `needed` [1] says how many there are.
    m.def(
        "tile_camera_within(Tensor low, Tensor high, Tensor index, int width, int height, int tile, int room) "
        "-> (Tensor offsets, Tensor gaussians, Tensor needed)");
    m.def(
        "tile_lidar_within(Tensor low, Tensor high, Tensor index, Tensor directions, Tensor edges, int columns, "
        "int max_rays, int room) -> (Tensor rays, Tensor offsets, Tensor gaussians, Tensor needed)");
    m.def(
        "render(Tensor still_means, Tensor still_quats, Tensor means, Tensor quats, Tensor velocities, Tensor scales, "
        "Tensor opacities, Tensor features, Tensor origins, Tensor directions, Tensor delays, Tensor rays, "
        "Tensor offsets, Tensor gaussians, bool moving, int backward=0, float[] centre=[]) -> (Tensor, Tensor, Tensor, "
        "Tensor)");
    m.def(
        "render_backward(Tensor still_means, Tensor still_quats, Tensor means, Tensor quats, Tensor velocities, "
        "Tensor scales, Tensor opacities, Tensor features, Tensor origins, Tensor directions, Tensor delays, "
        "Tensor rays, Tensor offsets, Tensor gaussians, bool moving, Tensor out, Tensor distance, "
        "Tensor transmittance, Tensor d_out, Tensor? d_distance, Tensor d_transmittance, bool ray_gradients, "
        "int backward=0, float[] centre=[]) "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
    m.def(
        "count_pairs(Tensor still_means, Tensor still_quats, Tensor means, Tensor quats, Tensor velocities, "
        "Tensor scales, Tensor opacities, Tensor features, Tensor origins, Tensor directions, Tensor delays, "
        "Tensor rays, Tensor offsets, Tensor gaussians, bool moving, float[] centre=[]) -> Tensor");
    m.def("sh_colour(Tensor sh, Tensor directions) -> Tensor");
    m.def("sh_colour_backward(Tensor sh, Tensor directions, Tensor d_colour) -> (Tensor d_sh, Tensor d_directions)");
    m.def(
        "move_actors(Tensor means, Tensor quats, Tensor starts, Tensor key_offsets, Tensor key_times, "
        "Tensor translations, Tensor quaternions, Tensor times) "
        "-> (Tensor means, Tensor quats, Tensor velocities, Tensor rotations)");
    m.def(
        "move_actors_backward(Tensor means, Tensor quats, Tensor starts, Tensor key_offsets, Tensor key_times, "
        "Tensor translations, Tensor quaternions, Tensor times, Tensor d_means, Tensor d_quats, Tensor d_velocities, "
        "Tensor d_rotations) -> (Tensor, Tensor, Tensor, Tensor)");
}
