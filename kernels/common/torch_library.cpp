// SPDX-License-Identifier: Apache-2.0
// The operators torch.ops.nurec_lite.*; nurec_lite/native/ops.py registers their gradients, and
// nurec_lite/native/operators names the tensors of each list. `view` is a view's row (math/view_row.cuh).
#include <torch/library.h>

TORCH_LIBRARY(nurec_lite, m) {
    // `fractions` [R], or [1] of all rays.
    m.def(
        "rays(Tensor view, Tensor directions, Tensor fractions, bool with_origins=True) -> (Tensor origins, Tensor "
        "world, Tensor delays)");
    // A camera ignores `grid` and `columns`. `all`: as many rows as Gaussians, the last ones with empty bounds and
    // index 0, so that nothing depends on a number that only the device knows. seen [N]: not 0 for visible Gaussians.
    // `depth_bits`: 32, or 24 or 16 for a coarser order by depth. `shapes`: tests of exact lists of warp tiles, [N, 8]
    // for an image and [N, 16] for a lidar, of visible Gaussians; or none. A lidar's hold `features` [N, 2], too, and
    // are the `rows` of render_segments. `occupied`: result of occupied_cells for this grid, if known. `in_place`: for
    // list_warp_tiles low [N, 4] has both bounds of each Gaussian, row index[k] for the k-th, and high is empty; count
    // [1] is the number of k; rows after them, and those of hidden Gaussians, are not written. `bands`: of a lidar's
    // warp tiles, in place; then candidates [N, 8] and their numbers, counts [N], replace low, and a Gaussian without
    // candidates is in no row. `blocks`: of an image in place, nothing is read or written of Gaussians of others.
    m.def(
        "project(Tensor[] gaussians, Tensor view, int sensor, Tensor[] grid, int columns, Tensor[] bands, "
        "bool all=False, int depth_bits=32, bool shapes=False, Tensor? occupied=None, bool in_place=False, "
        "Tensor? features=None, Tensor? blocks=None) -> (Tensor index, Tensor low, Tensor high, Tensor seen, Tensor "
        "shapes, Tensor count, "
        "Tensor candidates, Tensor counts)");
    // [bands + 1, 3 columns + 1] int32: the cells that hold rays, summed up over three turns (project/project.h).
    m.def("occupied_cells(Tensor[] grid, int columns) -> Tensor");
    // Lists of at most `capacity` entries; `needed` [1] is the number that they need. -1: all, and `needed` is empty.
    m.def(
        "tile_camera(Tensor[] projection, int width, int height, int tile, int capacity=-1) "
        "-> (Tensor offsets, Tensor gaussians, Tensor needed)");
    m.def(
        "tile_lidar(Tensor[] projection, Tensor[] grid, int columns, int max_rays, int capacity=-1) "
        "-> (Tensor rays, Tensor offsets, Tensor gaussians, Tensor needed)");
    // Warp tiles of 32 lidar rays, and lists of warp tiles (project/warp_tiles.h). `size`: pixels of an image and of a
    // warp tile; empty for a lidar. An image ignores `grid`.
    m.def("group_sweep_rays(Tensor[] grid) -> (Tensor rays, Tensor first, Tensor bins, Tensor heights)");
    m.def(
        "list_warp_tiles(Tensor[] gaussians, Tensor view, Tensor[] projection, Tensor shapes, Tensor[] rays, "
        "Tensor[] warp_tiles, Tensor[] grid, int[] size, bool exact, int capacity=-1) -> (Tensor offsets, Tensor "
        "gaussians, "
        "Tensor needed)");
    // Blends lists of warp tiles, each ray in one list, in segments of at most `length` entries; `kept` values are for
    // the backward pass. `rows`: the rows of Gaussians that rays read [N, 16 or 20], if they exist; then own_rows is
    // empty, and the backward pass gets `rows` in its place. `blocks` of visible_blocks: lists have no Gaussians of
    // others, and their rows are not written.
    m.def(
        "render_segments(Tensor[] gaussians, Tensor features, Tensor[] rays, Tensor[] lists, Tensor view, bool moving, "
        "int length, Tensor? rows=None, Tensor? blocks=None) -> (Tensor out, Tensor distance, Tensor transmittance, "
        "Tensor median, "
        "Tensor first, Tensor list_index, Tensor fields, Tensor own_rows)");
    // The backward pass of render_segments up to moments: 16 N numbers and then N bytes, 0 for Gaussians without valid
    // numbers (raster_warps/backward/gaussian_backward.h). Also the gradients of a camera's features and of origins and
    // directions of rays, if they are asked for. Nothing is written of Gaussians out of `blocks`.
    m.def(
        "render_backward_accumulate(Tensor[] gaussians, Tensor features, Tensor[] rays, Tensor[] lists, Tensor view, "
        "bool moving, int length, Tensor[] kept, Tensor[] outputs, Tensor d_out, Tensor? d_distance, "
        "Tensor d_transmittance, bool of_features, bool of_rays, Tensor? blocks=None) "
        "-> (Tensor grad_accum, Tensor d_features, Tensor[] d_rays)");
    // From moments of all views and upstream gradients to gradients of activations, or of stored parameters: then
    // `scene` has stored_quats, and the last gradient `columns` logits. Gradients that are not `asked` for are empty;
    // means and quats of moving Gaussians are not written. An upstream gradient of scales, opacities, lidar_opacities
    // or lidar may be one number for all; `upstream_moved` are four for each view, of moving Gaussians. `seen_only`:
    // upstream gradients of scales, opacities and lidar count only where a mean has a gradient. `blocks` as
    // visible_blocks has them: no gradient of the others is written.
    m.def(
        "gaussian_backward(Tensor[] scene, Tensor[] moved, Tensor[] views, Tensor?[] grad_accum, bool[] by_lidar, "
        "bool[] "
        "moving, "
        "bool[] wants_pose_grad, Tensor?[] upstream, Tensor?[] upstream_moved, bool[] asked, int columns, "
        "bool seen_only, Tensor? blocks=None) "
        "-> (Tensor[] found, Tensor[] d_moved, Tensor d_pose_deltas)");
    // Several views of one sensor in one launch, without gradients (raster_warps/views/views.h). `size` as in
    // list_warp_tiles; `segment`: entries of a segment of a list, 0: lists are not split; `capacity`: for Gaussians
    // that some view sees and for entries, -1: as many as there are. `directions` are in the world's axes; `needed`
    // [2]: the numbers that `capacity` limits.
    m.def(
        "render_views(Tensor[] scene, Tensor views, Tensor[] rays, int[] size, int columns, bool moving, bool lenses, "
        "int segment, int[] capacity) -> (Tensor out, Tensor distance, Tensor transmittance, Tensor median, Tensor "
        "directions, "
        "Tensor needed)");
    // The same for training (raster_warps/views/train.h), also for several cameras with images of one size, which
    // bring their pixels each. `targets` and `length` as in render_segments; `capacity`: for entries, -1: as many as
    // there are; `depth_bits` as in project. `needed` [V]: entries by view, with a sum of at least the need of all. The
    // outputs after it are for the backward pass.
    m.def(
        "render_views_train(Tensor[] scene, Tensor views, Tensor[] rays, Tensor targets, int[] size, int columns, "
        "bool moving, bool lenses, int length, int capacity, int depth_bits) -> (Tensor out, Tensor distance, "
        "Tensor transmittance, Tensor median, Tensor needed, Tensor directions, Tensor delays, Tensor table, "
        "Tensor offsets, Tensor gaussians, Tensor numbers, Tensor counts, Tensor first, Tensor list_index, "
        "Tensor fields, Tensor rows)");
    // The backward pass of render_views_train up to moments: a row a view, as render_backward_accumulate gives them.
    // `of_features`: also the gradients of the colours, [V, N, 3].
    m.def(
        "render_views_accumulate(Tensor[] scene, Tensor views, Tensor targets, bool moving, int length, "
        "Tensor[] kept, Tensor[] outputs, Tensor d_out, Tensor? d_distance, Tensor d_transmittance, bool of_features) "
        "-> (Tensor grad_accum, Tensor d_features)");
    // From the moments of cameras to gradients of harmonics, and of the directions from the views:
    // still_means, means and node rotations. `node_rotations`: rotations of the nodes [V, K, 4] of `scene`, and each
    // Gaussian's node.
    m.def(
        "render_views_colour_backward(Tensor[] scene, Tensor[] node_rotations, Tensor views, Tensor grad_accum) "
        "-> (Tensor still_means, Tensor means, Tensor rotations, Tensor sh0, Tensor sh_rest)");
    // The last three are the BackwardPlan of raster_tiles/render.h.
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
    // The same for Gaussians in world space, seen from an eye; 0 for those with `seen` [N] 0. Out of `blocks` nothing
    // is read or written.
    m.def(
        "view_colour(Tensor[] placements, Tensor sh, Tensor? rest, Tensor eye, Tensor? seen, Tensor? blocks) "
        "-> Tensor");
    m.def(
        "view_colour_backward(Tensor[] placements, Tensor sh, Tensor? rest, Tensor eye, Tensor d_colour) "
        "-> (Tensor d_still_means, Tensor d_means, Tensor d_rotations, Tensor d_sh, Tensor d_rest)");
    // The same with a rank-1 gradient of coefficients: the product basis(directions) x colours is not formed.
    m.def(
        "view_colour_rank1(Tensor[] placements, Tensor sh, Tensor? rest, Tensor eye, Tensor d_colour, "
        "Tensor? blocks=None) "
        "-> (Tensor d_still_means, Tensor d_means, Tensor d_rotations, Tensor directions, Tensor colours)");
    // Directions from V eyes [V, 3] to the first `still` of N Gaussians, into `directions` [V, N, 3]; rows of others,
    // and rows out of `blocks`, are not written. On CUDA alone.
    m.def("view_directions(Tensor means, Tensor eyes, Tensor blocks, int still, Tensor(a!) directions) -> ()");
    m.def("move_actors(Tensor[] actors) -> (Tensor means, Tensor quats, Tensor velocities, Tensor rotations)");
    m.def(
        "move_actors_backward(Tensor[] actors, Tensor[] d_moved) "
        "-> (Tensor d_means, Tensor d_quats, Tensor d_translations, Tensor d_quaternions)");
    // For each time its opacities; after the first `still` Gaussians they are 0 while the node is absent, that is
    // outside of `first` to `last` [K].
    m.def(
        "mask_absent_actors(Tensor[] opacities, Tensor[] times, Tensor node, int still, Tensor first, Tensor last) "
        "-> Tensor[]");
    // (1 - w) L1 + w (1 - SSIM) of images [H, W, 3], w the weight; `slopes` [3, H, W, 3] are for the backward pass.
    m.def("image_loss(Tensor rendered, Tensor target, float ssim_weight) -> (Tensor loss, Tensor slopes)");
    m.def(
        "image_loss_backward(Tensor rendered, Tensor target, float ssim_weight, Tensor slopes, Tensor d_loss) "
        "-> Tensor");
    // Means over lidar rays: errors of range and intensity where something returned, and the cross entropy of the
    // drop. `counts` [2] are for the backward pass.
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
    // A view with the corrected pose of its sensor; `camera` -1: a sensor without corrections.
    m.def(
        "correct_view(Tensor view, Tensor start, Tensor end, Tensor[] known, int camera) "
        "-> (Tensor row, Tensor ends, Tensor pose_delta, Tensor drift, Tensor moment)");
    m.def(
        "correct_view_backward(Tensor view, Tensor[] known, int camera, Tensor d_pose_delta, Tensor d_drift) "
        "-> Tensor[]");
    // Pose gradient of a sensor that rotates about the centre and moves, from the gradients of means and quats of one
    // set of Gaussians or two.
    m.def("pose_gradient(Tensor centre, Tensor[] placed, Tensor[] grads) -> Tensor");
    // Pixels a metre [N] in the image that sees a Gaussian from nearest; 0: none sees it.
    m.def("footprints(Tensor[] seen, float nearest, float margin) -> Tensor");
    // Distances [q, k] of queries [q, 3] from their nearest points of [n, 3], ascending, and numbers [q, k] of the
    // points.
    m.def("find_nearest(Tensor queries, Tensor points, int k) -> (Tensor distances, Tensor numbers)");
    // Blocks of 256 Gaussians of the store with one that a view may see; the first `still` Gaussians do not move.
    // `sensors`: 0 a lidar, 1 a camera, 2 a camera with a lens of its own. `edges`, `columns` and `occupied` are those
    // of the lidars, in their order: their cells, and the tables of occupied_cells. `spheres` [blocks, 4]: centre and
    // radius about the Gaussians of a block; a negative radius if no sphere is known. A call reads blocks without a
    // sphere, and blocks with one that a view may see. It stores the spheres of hidden blocks. After a change of hidden
    // Gaussians set all to -1. Returns uint8 [blocks, to a multiple of 16], 1 for a visible block; the rest is not
    // written.
    m.def(
        "mark_visible_blocks(Tensor means, Tensor log_scales, Tensor opacity_logits, Tensor lidar_logits, "
        "Tensor(a!) spheres, int still, Tensor[] views, int[] sensors, Tensor[] edges, int[] columns, "
        "Tensor[] occupied) -> Tensor");
    // [1 + blocks] int32 from such marks: how many blocks are visible, then their numbers, ascending; the rest is not
    // written. Visible blocks lose their spheres.
    m.def("list_visible_blocks(Tensor visible, Tensor(a!) spheres) -> Tensor");
    // Activations of stored parameters; `lidar_opacities` is empty without a third column of logits. A gradient
    // without dependents is empty. Out of `blocks`, opacities are 0, and nothing else is written.
    m.def(
        "activate(Tensor quats, Tensor log_scales, Tensor opacity_logits, Tensor lidar_logits, Tensor? blocks=None) "
        "-> (Tensor unit, Tensor scales, Tensor opacities, Tensor lidar, Tensor lidar_opacities)");
    m.def(
        "activate_backward(Tensor quats, Tensor scales, Tensor opacities, Tensor lidar, Tensor lidar_opacities, "
        "int columns, Tensor? d_unit, Tensor? d_scales, Tensor? d_opacities, Tensor? d_lidar, "
        "Tensor? d_lidar_opacities) "
        "-> (Tensor d_quats, Tensor d_log_scales, Tensor d_opacity_logits, Tensor d_lidar_logits)");
    // Means over the Gaussians of `blocks`; `tie` is 0 without the lidar's opacities. A Gaussian's gradient is that of
    // the mean over all. Gradients that are equal for all are one number [1]: that of scales, and that of opacities
    // without the lidar's.
    m.def(
        "regularisers(Tensor opacities, Tensor? lidar_opacities, Tensor scales, Tensor? blocks=None) "
        "-> (Tensor opacity, Tensor scale, Tensor tie)");
    m.def(
        "regularisers_backward(Tensor opacities, Tensor? lidar_opacities, Tensor scales, Tensor? d_opacity, "
        "Tensor? d_scale, Tensor? d_tie, Tensor? blocks=None) -> (Tensor d_opacities, Tensor d_lidar_opacities, Tensor "
        "d_scales)");
    // Moves means in place, by normal numbers from row, step and seed, and keeps log scales above `least`. `failed`
    // not 0: nothing moves. Gaussians out of `blocks` stay as they are.
    m.def(
        "sgld_noise(Tensor(a!) means, Tensor(b!) log_scales, Tensor quats, Tensor opacity_logits, Tensor lidar_logits, "
        "Tensor step, int seed, Tensor amount, Tensor? failed, float least, Tensor? blocks=None) -> ()");
    // Opacities, before the sigmoid, and the factor of scales [N] of a Gaussian's copies; logits [N, S] of S sensors,
    // 1 or 2.
    m.def("mcmc_split(Tensor logits, Tensor copies) -> (Tensor parted, Tensor factor)");
    // One step of Adam, in place. `rates` [n] of n tensors; `failed` not 0: nothing changes; in a `touched_only`
    // tensor, values with a gradient of exactly 0 stay, and so do their moments. With directions and colours [V, N, 3]
    // of V views from view_colour_rank1, two gradients are None: of the first coefficients, and of the rest. Both
    // moments of a tensor may be bfloat16, rounded stochastically. `places` [n]: indices of these tensors' rates among
    // more rates. `blocks`: rows of `touched_only` tensors out of them stay, and their gradients are not read.
    m.def(
        "adam(Tensor(a!)[] parameters, Tensor?[] gradients, Tensor(b!)[] first, Tensor(c!)[] second, "
        "Tensor(d!)[] steps, Tensor rates, Tensor? failed, bool[] touched_only, float beta_1, float beta_2, "
        "float epsilon, Tensor? directions=None, Tensor? colours=None, int[]? places=None, Tensor? blocks=None) -> ()");
    // Copies the bytes of each of `values` into `into`, which on CUDA may be in page-locked memory of the host, and
    // the present `numbers`, 64 at most, into `numbers_at`.
    m.def(
        "multi_tensor_copy(Tensor(a!)[] into, Tensor[] values, Tensor(b!)? numbers_at=None, float[] numbers=[]) -> ()");
    // Copies rows [N, ...] of the listed blocks, times the factors, into arrays `packed` [capacity, 256 * ...], and
    // back without factors. Blocks beyond the capacity are left out; all else stays as it is.
    m.def("pack_blocks(Tensor[] rows, Tensor blocks, float[] factors, Tensor(a!)[] packed) -> ()");
    m.def("unpack_blocks(Tensor[] packed, Tensor blocks, Tensor(a!)[] rows) -> ()");
    // Sets rows of gradients [N, ...] to 0 where the gradient of the mean [N, 3] is 0, in the listed blocks.
    m.def("drop_unseen(Tensor d_means, Tensor blocks, Tensor(a!)[] gradients) -> ()");
    // The simulator's street (simulate/street.h), as cameras and lidars see it. `world`: solids, kinds, boxes,
    // nodes, order, cars, reach; `motion`: rotations and positions of the sensor at S times, then those of owners.
    // `slots` [n]: index of the time. `tone` [8]: gains, offsets and noise as floats, hash; `first`: number of the
    // first pixel.
    m.def(
        "simulate_pixels(Tensor[] world, Tensor[] motion, Tensor directions, Tensor slots, float spread, int seed, "
        "Tensor tone, int first) -> Tensor");
    m.def(
        "simulate_echoes(Tensor[] world, Tensor[] motion, Tensor directions, Tensor slots, float spread, int seed) "
        "-> Tensor");
}
