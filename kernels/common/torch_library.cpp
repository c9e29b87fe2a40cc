// SPDX-License-Identifier: Apache-2.0
// The operators torch.ops.nurec_lite.*; nurec_lite/native/ops.py registers their gradients, and
// nurec_lite/native/operators names the tensors of each list. `view` is a view's row (math/view_row.cuh).
#include <torch/library.h>

TORCH_LIBRARY(nurec_lite, m) {
    // `fractions` [R], or [1] of all rays.
    m.def(
        "rays(Tensor view, Tensor directions, Tensor fractions, bool with_origins=True) -> (Tensor origins, Tensor "
        "world, Tensor delays)");
    // `grid` and `columns` are not looked at for a camera. `all`: as many rows as Gaussians, the last of them with
    // bounds that hold nothing and index 0: what depends on no number that only the device knows. seen [N]: not 0 for
    // those that are not hidden. `depth_bits`: 32, or 24 or 16 of a coarser depth by which they are ordered. `shapes`:
    // what exact lists of bundles go by, [N, 8] of an image and [N, 16] of a lidar, of those that are seen; or none. A
    // lidar's hold `features` [N, 2], too, and are what render_segments takes for `rows`. `occupied`: of a lidar, what
    // occupied_cells found of this grid, where that is known. `in_place`: for list_warp_tiles low [N, 4] has both
    // bounds of each Gaussian, row index[k] the k-th's, and high none; count [1] says how many k there are, behind
    // which, and of those that are hidden, nothing is written. `bands`: of a lidar's bundles, in place; then not low,
    // but candidates [N, 8] and how many they are, counts [N], say where each Gaussian lies, and who has none is in no
    // row.
    m.def(
        "project(Tensor[] gaussians, Tensor view, bool is_camera, Tensor[] grid, int columns, Tensor[] bands, "
        "bool all=False, int depth_bits=32, bool shapes=False, Tensor? occupied=None, bool in_place=False, "
        "Tensor? features=None) -> (Tensor index, Tensor low, Tensor high, Tensor seen, Tensor shapes, Tensor count, "
        "Tensor candidates, Tensor counts)");
    // [bands + 1, 3 columns + 1] int32: which cells hold rays, summed up over three turns (project/params.h).
    m.def("occupied_cells(Tensor[] grid, int columns) -> Tensor");
    // Lists of at most `capacity` entries, of which `needed` [1] says how many there are; -1: all, and `needed` is
    // empty.
    m.def(
        "tile_camera(Tensor[] projection, int width, int height, int tile, int capacity=-1) "
        "-> (Tensor offsets, Tensor gaussians, Tensor needed)");
    m.def(
        "tile_lidar(Tensor[] projection, Tensor[] grid, int columns, int max_rays, int capacity=-1) "
        "-> (Tensor rays, Tensor offsets, Tensor gaussians, Tensor needed)");
    // WarpTiles of 32 rays of a lidar, and lists of bundles (bundle/params.h). `size`: of an image and of a bundle, in
    // pixels; empty of a lidar, and `grid` is not looked at for an image.
    m.def("group_sweep_rays(Tensor[] grid) -> (Tensor rays, Tensor first, Tensor bins, Tensor heights)");
    m.def(
        "list_warp_tiles(Tensor[] gaussians, Tensor view, Tensor[] projection, Tensor shapes, Tensor[] rays, "
        "Tensor[] warp_tiles, Tensor[] grid, int[] size, bool exact, int capacity=-1) -> (Tensor offsets, Tensor "
        "gaussians, "
        "Tensor needed)");
    // Lists of bundles, of which each ray has one, in parts of `length` entries at most; what is kept of them is for
    // the backward pass. `rows`: what rays read of the Gaussians [N, 16 or 20], where somebody made it before; then the
    // last one of what is kept is empty, and the backward pass wants them in its place.
    m.def(
        "render_segments(Tensor[] gaussians, Tensor features, Tensor[] rays, Tensor[] lists, Tensor view, bool moving, "
        "int length, Tensor? rows=None) -> (Tensor out, Tensor distance, Tensor transmittance, Tensor median, "
        "Tensor first, Tensor list_index, Tensor fields, Tensor own_rows)");
    m.def(
        "render_segments_backward(Tensor[] gaussians, Tensor features, Tensor[] rays, Tensor[] lists, Tensor view, "
        "bool moving, int length, Tensor[] kept, Tensor[] outputs, Tensor d_out, Tensor? d_distance, "
        "Tensor d_transmittance, bool ray_gradients) "
        "-> (Tensor[] d_gaussians, Tensor d_features, Tensor[] d_rays)");
    // The backward pass of render_segments up to what rays tell of each Gaussian, 16 N numbers and behind them N bytes,
    // 0 for those of whose numbers nothing may be read (gaussian_backward/params.h); and of a camera, if `of_features`,
    // the gradient of features.
    m.def(
        "render_backward_accumulate(Tensor[] gaussians, Tensor features, Tensor[] rays, Tensor[] lists, Tensor view, "
        "bool moving, "
        "int length, Tensor[] kept, Tensor[] outputs, Tensor d_out, Tensor? d_distance, Tensor d_transmittance, "
        "bool of_features) -> (Tensor grad_accum, Tensor d_features)");
    // From what the rays of all views tell, and gradients that come from elsewhere, to those of activations, or of what
    // is stored of Gaussians: then `scene` has stored_quats, and the last gradient `columns` logits. What is not
    // `asked` for is empty; means and quats of Gaussians that move are not written. A given gradient of scales,
    // opacities, lidar_opacities or lidar may be one number for all; `given_moved` are four of each view, of what
    // moves.
    m.def(
        "gaussian_backward(Tensor[] scene, Tensor[] moved, Tensor[] views, Tensor?[] grad_accum, bool[] by_lidar, "
        "bool[] "
        "moving, "
        "bool[] wants_pose_grad, Tensor?[] upstream, Tensor?[] upstream_moved, bool[] asked, int columns) "
        "-> (Tensor[] found, Tensor[] d_moved, Tensor d_nudges)");
    // Several views of one sensor at once, without gradients (views/params.h). `size` as list_warp_tiles has it;
    // `part`: entries of a part of a list, 0: lists are not cut; `capacity`: for Gaussians that some view sees and for
    // entries, -1: as many as there are. `directions` are in the world's axes; `needed` [2]: as `capacity`, what there
    // is.
    m.def(
        "render_views(Tensor[] scene, Tensor views, Tensor[] rays, int[] size, int columns, bool moving, int segment, "
        "int[] capacity) -> (Tensor out, Tensor distance, Tensor transmittance, Tensor median, Tensor directions, "
        "Tensor needed)");
    // The same for a training (views/learn.h), also of several cameras with images of one size, which bring their
    // pixels each. `turned`: rotations of the nodes [V, K, 4], whose frames `scene` has, and which node is a
    // Gaussian's; `targets` and `length` as render_segments has them; `nudges` [V, 6] get a gradient and say nothing
    // else, or [0, 6]; `capacity`: for entries, -1: as many as there are; `depth_bits` as project has them. `needed`
    // [V]: entries by view, whose sum is at least what all need. What comes behind is for the backward pass, whose
    // `d_scene` is empty where `scene` says nothing to the sensor.
    m.def(
        "render_views_train(Tensor[] scene, Tensor[] node_rotations, Tensor views, Tensor nudges, Tensor[] rays, "
        "Tensor "
        "targets, "
        "int[] size, int columns, bool moving, int length, int capacity, int depth_bits) -> (Tensor out, Tensor "
        "distance, "
        "Tensor transmittance, Tensor median, Tensor needed, Tensor directions, Tensor delays, "
        "Tensor table, Tensor offsets, Tensor gaussians, Tensor places, Tensor first, Tensor list_index, Tensor "
        "fields, "
        "Tensor rows)");
    m.def(
        "render_views_train_backward(Tensor[] scene, Tensor[] node_rotations, Tensor views, Tensor targets, bool "
        "moving, int "
        "length, "
        "Tensor[] kept, Tensor[] outputs, Tensor d_out, Tensor? d_distance, Tensor d_transmittance, bool "
        "wants_pose_grad) "
        "-> (Tensor[] d_scene, Tensor d_rotations, Tensor d_nudges)");
    // The last three are the BackwardPlan of render/params.h.
    m.def(
        "render(Tensor[] gaussians, Tensor features, Tensor[] rays, Tensor[] lists, Tensor view, bool moving, "
        "bool split, bool launch_bounds, bool half_staging) "
        "-> (Tensor out, Tensor distance, Tensor transmittance, Tensor median)");
    // Gradients of rays are those of their origins and directions, or none.
    m.def(
        "render_backward(Tensor[] gaussians, Tensor features, Tensor[] rays, Tensor[] lists, Tensor view, bool moving, "
        "Tensor[] outputs, Tensor d_out, Tensor? d_distance, Tensor d_transmittance, bool ray_gradients, "
        "bool split, bool launch_bounds, bool half_staging) "
        "-> (Tensor[] d_gaussians, Tensor d_features, Tensor[] d_rays)");
    m.def(
        "count_pairs(Tensor[] gaussians, Tensor features, Tensor[] rays, Tensor[] lists, Tensor view, bool moving) "
        "-> Tensor");
    // Coefficients in one array, or the first in `sh` and the others in `rest`; without those, `d_rest` is empty.
    m.def("sh_colour(Tensor sh, Tensor? rest, Tensor directions) -> Tensor");
    m.def(
        "sh_colour_backward(Tensor sh, Tensor? rest, Tensor directions, Tensor d_colour) "
        "-> (Tensor d_sh, Tensor d_rest, Tensor d_directions)");
    // The same of Gaussians where they stand, as an eye sees them; 0 of those for which `seen` [N] is 0.
    m.def("view_colour(Tensor[] placements, Tensor sh, Tensor? rest, Tensor eye, Tensor? seen) -> Tensor");
    m.def(
        "view_colour_backward(Tensor[] placements, Tensor sh, Tensor? rest, Tensor eye, Tensor d_colour) "
        "-> (Tensor d_still_means, Tensor d_means, Tensor d_rotations, Tensor d_sh, Tensor d_rest)");
    // The same without the product that the gradient of coefficients is: basis(directions) x colours.
    m.def(
        "view_colour_rank1(Tensor[] placements, Tensor sh, Tensor? rest, Tensor eye, Tensor d_colour) "
        "-> (Tensor d_still_means, Tensor d_means, Tensor d_rotations, Tensor directions, Tensor colours)");
    m.def("move_actors(Tensor[] actors) -> (Tensor means, Tensor quats, Tensor velocities, Tensor rotations)");
    m.def(
        "move_actors_backward(Tensor[] actors, Tensor[] d_moved) "
        "-> (Tensor d_means, Tensor d_quats, Tensor d_translations, Tensor d_quaternions)");
    // At each time the opacities that belong to it, 0 of Gaussians behind the first `still` whose node is not there
    // then: it is from `first` to `last` [K].
    m.def(
        "mask_absent_actors(Tensor[] opacities, Tensor[] times, Tensor node, int still, Tensor first, Tensor last) "
        "-> Tensor[]");
    // (1 - w) L1 + w (1 - SSIM) of images [H, W, 3], w the weight; `slopes` [3, H, W, 3] are for the backward pass.
    m.def("image_loss(Tensor rendered, Tensor target, float ssim_weight) -> (Tensor loss, Tensor slopes)");
    m.def(
        "image_loss_backward(Tensor rendered, Tensor target, float ssim_weight, Tensor slopes, Tensor d_loss) "
        "-> Tensor");
    // Means over lidar rays, of what range and intensity miss where something returned, and of the surprise by the
    // drop; `counts` [2] are for the backward pass.
    m.def(
        "lidar_loss(Tensor distance, Tensor features, Tensor transmittance, Tensor ranges, Tensor intensities, "
        "Tensor returned, Tensor? counted, bool aimed) -> (Tensor range, Tensor intensity, Tensor drop, Tensor "
        "counts)");
    m.def(
        "lidar_loss_backward(Tensor distance, Tensor features, Tensor transmittance, Tensor ranges, "
        "Tensor intensities, Tensor returned, Tensor? counted, bool aimed, Tensor counts, Tensor? d_range, "
        "Tensor? d_intensity, Tensor? d_drop) -> (Tensor d_distance, Tensor d_features, Tensor d_transmittance)");
    // image exp(log_gain + radial . vignetting) + offset; without vignetting, `d_vignetting` is empty.
    m.def("expose(Tensor image, Tensor log_gain, Tensor offset, Tensor? vignetting) -> Tensor");
    m.def(
        "expose_backward(Tensor image, Tensor log_gain, Tensor? vignetting, Tensor d_exposed) "
        "-> (Tensor d_image, Tensor d_log_gain, Tensor d_offset, Tensor d_vignetting)");
    m.def("slice_grid(Tensor grid, Tensor image) -> Tensor");
    m.def("slice_grid_backward(Tensor grid, Tensor image, Tensor d_sliced) -> (Tensor d_grid, Tensor d_image)");
    // features + transmittance colour, the colour being that of a map of logits [3, H, W] by direction.
    m.def("over_sky(Tensor features, Tensor transmittance, Tensor sky, Tensor directions) -> Tensor");
    m.def(
        "over_sky_backward(Tensor transmittance, Tensor sky, Tensor directions, Tensor d_image) "
        "-> (Tensor d_transmittance, Tensor d_sky)");
    // A view from where its sensor is believed to have been; `camera` -1: it is none of those that are corrected.
    m.def(
        "correct_view(Tensor view, Tensor start, Tensor end, Tensor[] known, int camera) "
        "-> (Tensor row, Tensor ends, Tensor nudge, Tensor drift, Tensor moment)");
    m.def(
        "correct_view_backward(Tensor view, Tensor[] known, int camera, Tensor d_nudge, Tensor d_drift) "
        "-> Tensor[]");
    // Of a sensor that turns about the centre and moves, from those of the means and quats of one set of Gaussians or
    // two.
    m.def("pose_gradient(Tensor centre, Tensor[] placed, Tensor[] grads) -> Tensor");
    // Pixels a metre [N] in the image that sees a Gaussian from nearest; 0: none sees it.
    m.def("footprints(Tensor[] seen, float nearest, float margin) -> Tensor");
    // What is stored of Gaussians as sensors see it; `lidar_opacities` is empty without a third column of logits. The
    // gradient of what nothing depends on is empty.
    m.def(
        "activate(Tensor quats, Tensor log_scales, Tensor opacity_logits, Tensor lidar_logits) "
        "-> (Tensor unit, Tensor scales, Tensor opacities, Tensor lidar, Tensor lidar_opacities)");
    m.def(
        "activate_backward(Tensor quats, Tensor scales, Tensor opacities, Tensor lidar, Tensor lidar_opacities, "
        "int columns, Tensor? d_unit, Tensor? d_scales, Tensor? d_opacities, Tensor? d_lidar, "
        "Tensor? d_lidar_opacities) "
        "-> (Tensor d_quats, Tensor d_log_scales, Tensor d_opacity_logits, Tensor d_lidar_logits)");
    // Means; `tie` is 0 without the lidar's opacities. Gradients that are the same for all are given once, as [1]: that
    // of scales, and that of opacities without the lidar's.
    m.def(
        "regularisers(Tensor opacities, Tensor? lidar_opacities, Tensor scales) "
        "-> (Tensor opacity, Tensor scale, Tensor tie)");
    m.def(
        "regularisers_backward(Tensor opacities, Tensor? lidar_opacities, Tensor scales, Tensor? d_opacity, "
        "Tensor? d_scale, Tensor? d_tie) -> (Tensor d_opacities, Tensor d_lidar_opacities, Tensor d_scales)");
    // Moves means in place, by normal numbers that follow from row, step and seed, and keeps log scales above `least`.
    // `failed` not 0: nothing moves.
    m.def(
        "sgld_noise(Tensor(a!) means, Tensor(b!) log_scales, Tensor quats, Tensor opacity_logits, Tensor lidar_logits, "
        "Tensor step, int seed, Tensor amount, Tensor? failed, float least) -> ()");
    // Opacities, before the sigmoid, and the factor of scales [N] of the copies that stand in a Gaussian's place;
    // logits [N, S] of S sensors, 1 or 2.
    m.def("mcmc_split(Tensor logits, Tensor copies) -> (Tensor parted, Tensor factor)");
    // One step of Adam, in place. `rates` [n] of n tensors; `failed` not 0: nothing changes; of a tensor that is
    // `touched_only`, values whose gradient is exactly 0 stay, and so do their moments. With directions and colours,
    // as view_colour_rank1 gives them, two gradients are None: of the first coefficients, and of the rest. Moments of
    // a tensor may be bfloat16 both, which are rounded by chance. `places` [n]: of more rates, those of these tensors.
    m.def(
        "adam(Tensor(a!)[] parameters, Tensor?[] gradients, Tensor(b!)[] first, Tensor(c!)[] second, "
        "Tensor(d!)[] steps, Tensor rates, Tensor? failed, bool[] touched_only, float beta_1, float beta_2, "
        "float epsilon, Tensor? directions=None, Tensor? colours=None, int[]? places=None) -> ()");
    // The bytes of each of `values` into `into`, which on CUDA may lie in page-locked memory of the host, too, and
    // `numbers`, 64 at most, as they are now, into `numbers_at`.
    m.def(
        "multi_tensor_copy(Tensor(a!)[] into, Tensor[] values, Tensor(b!)? numbers_at=None, float[] numbers=[]) -> ()");
}
