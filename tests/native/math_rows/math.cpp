// SPDX-License-Identifier: Apache-2.0
// Exports every function of kernels/math in double precision, for the tests of the parent folder. NUREC_ROWS exports an
// expression under a name, NUREC_EXPORT an adapter of the other headers, NUREC_PLAIN a function as it is.
#include "../../../kernels/math/activate.cuh"
#include "../../../kernels/math/adam.cuh"
#include "../../../kernels/math/bfloat.cuh"
#include "../../../kernels/math/conic.cuh"
#include "../../../kernels/math/covariance.cuh"
#include "../../../kernels/math/depth.cuh"
#include "../../../kernels/math/footprint.cuh"
#include "../../../kernels/math/lidar_loss.cuh"
#include "../../../kernels/math/pose.cuh"
#include "../../../kernels/math/view_direction.cuh"
#include "images.h"
#include "numbers.h"
#include "responses.h"
#include "sensors.h"

using namespace nurec;
using namespace nurec::testing;

NUREC_ROWS(plus, V, (V a, V b), a + b)
NUREC_ROWS(minus, V, (V a, V b), a - b)
NUREC_EXPORT(times, times)
NUREC_ROWS(dot, D, (V a, V b), dot(a, b))
NUREC_ROWS(dot_of_two, D, (Vec2<D> a, Vec2<D> b), dot(a, b))
NUREC_ROWS(symmetric_times, Vec2<D>, (Sym2<D> const& m, Vec2<D> a), m* a)
NUREC_ROWS(matrix_times, V, (M const& m, V a), m* a)
NUREC_ROWS(matrix_product, M, (M const& a, M const& b), a* b)

NUREC_ROWS(quat_plus, Q, (Q a, Q b), a + b)

NUREC_ROWS(first_block, D, (D start, D track, D size), D(first_block(int64_t(start), int64_t(track), int64_t(size))))
NUREC_ROWS(begins_by, D, (D start, D track, D block, D size),
           D(begins_by(int64_t(start), int64_t(track), int64_t(block), int64_t(size))))
NUREC_ROWS(blocks_with_rows, D, (D begin, D end, D size),
           D(blocks_with_rows(int64_t(begin), int64_t(end), int64_t(size))))
NUREC_EXPORT(track_of_block, block_to_track)
NUREC_EXPORT(keys_around, keys)
NUREC_ROWS(present, D, (D first, D last, D time), D(present(first, last, time)))
NUREC_ROWS(pose_plus, MovingPose<D>, (MovingPose<D> const& a, MovingPose<D> const& b), a + b)
NUREC_ROWS(moved, Moved<D>, (MovingPose<D> const& pose, Vec3<D> mean, Quat<D> quat), moved(pose, mean, quat))
NUREC_ROWS(moved_by_matrices, Moved<D>, (MovingPose<D> const& pose, Vec3<D> mean, Quat<D> quat),
           moved(matrices_of(pose), mean, quat))

NUREC_ROWS(make_frame_backward, GaussianGrad<D>, (V mean, Q q, V s, V v, F const& d),
           make_frame_backward(mean, q, s, v, make_frame(mean, q, s, v), d))
NUREC_EXPORT(approach, approach<true, D>)
NUREC_EXPORT(respond_still, respond<false, D>)
NUREC_EXPORT(respond_moving, respond<true, D>)
NUREC_EXPORT(respond_backward, response_backward<true>)

NUREC_ROWS(alignment_of, M, (F const& f), alignment_of(f).Q)
NUREC_EXPORT(closest_point_still, nearest_point<false>)
NUREC_EXPORT(closest_point_moving, nearest_point<true>)
NUREC_EXPORT(evaluate_still, response_of<false>)
NUREC_EXPORT(evaluate_moving, response_of<true>)
NUREC_EXPORT(aligned_moments_alpha, aligned_moments<false, false>)
NUREC_EXPORT(aligned_moments_alpha_moving, aligned_moments<true, false>)
NUREC_EXPORT(aligned_moments_alpha_and_t_moving, aligned_moments<true, true>)

NUREC_EXPORT(ray_moments_alpha, ray_moments_of<false>)
NUREC_EXPORT(ray_moments_alpha_and_t, ray_moments_of<true>)
NUREC_EXPORT(add_moments_alpha, moments_with<false, false>)
NUREC_EXPORT(add_moments_alpha_moving, moments_with<true, false>)
NUREC_EXPORT(add_moments_alpha_and_t_moving, moments_with<true, true>)
NUREC_ROWS(moments_backward, GaussianGrad<D>, (V mean, Q q, V s, V v, Moments<D> const& m),
           moments_backward(q, s, make_frame(mean, q, s, v), m))

NUREC_EXPORT(form_at, form_at)
NUREC_ROWS(level_cross, V, (D x, D y, V e), level_cross(Vec2<D>{x, y}, e))
NUREC_EXPORT(may_hit, may_meet)

NUREC_ROWS(reaches, D, (D alpha, D t), D(reaches(alpha, t)))
NUREC_EXPORT(blend_weight, weight_of)
NUREC_EXPORT(blend_backward, alpha_gradient)
NUREC_ROWS(range_residual, D, (D t, RangeTarget<D> target), range_residual(t, target))
NUREC_ROWS(range_residual_backward, D, (D t, RangeTarget<D> target, D d_missed),
           range_residual_backward(t, target, d_missed))

#define NUREC_EXPORT_SH(S)                                   \
    NUREC_EXPORT(sh_basis_##S, basis<S>)                     \
    NUREC_EXPORT(sh_basis_backward_##S, basis_backward<S>)   \
    NUREC_EXPORT(sh_sum_##S, raw_colour<S>)                  \
    NUREC_EXPORT(sh_colour_##S, colour<S>)                   \
    NUREC_EXPORT(sh_colour_backward_##S, colour_backward<S>) \
    NUREC_EXPORT(sh_colour_rank1_backward_##S, colour_outer<S>)
NUREC_EXPORT_SH(1)
NUREC_EXPORT_SH(4)
NUREC_EXPORT_SH(9)
NUREC_EXPORT_SH(16)
NUREC_ROWS(sh_clamp_backward, V, (V c, V d_colour), sh_clamp_backward(c, d_colour))

NUREC_ROWS(ssim_window, D, (D k), ssim_window<D>(int(k)))
NUREC_ROWS(ssim_of, D, (SsimMoments<D> const& m), ssim_of(m).value)
NUREC_EXPORT(ssim_of_backward, ssim_slopes)

NUREC_ROWS(drop_cross_entropy, D, (D drop, D returned), drop_cross_entropy(drop, returned != 0))
NUREC_ROWS(drop_cross_entropy_slope, D, (D drop, D returned), drop_cross_entropy_slope(drop, returned != 0))

NUREC_EXPORT(sky_place, texels_about)
NUREC_ROWS(sky_logit, D, (SmallSky const& sky, V d), sky_logit(sky.a, sky_place(d, SKY_ROWS, SKY_COLUMNS)))
NUREC_ROWS(sky_colour, V, (SmallSky const& sky, V d),
           sky_colour(sky.a, SKY_TEXELS, sky_place(d, SKY_ROWS, SKY_COLUMNS)))

NUREC_EXPORT(grid_step, step_on_axis)
NUREC_ROWS(grid_place, D, (D pixel, D n, D cells), grid_place<D>(int(pixel), int(n), int(cells)))
NUREC_EXPORT(grid_cell, flat_weights)
NUREC_EXPORT(grid_row, rows_of_grid)
NUREC_ROWS(sliced, V, (SmallGrid const& grid, V c, D column, D row),
           sliced(grid.a, small_grid(), cell_at(c, column, row), c))
NUREC_EXPORT(sliced_backward, sliced_gradients)
NUREC_ROWS(luminance_weights, D, (V c), dot(luminance_weights<D>(), c))

NUREC_ROWS(radial_at, V, (D column, D row, D width, D height),
           radial_at<D>(int(column), int(row), int(width), int(height)))
NUREC_ROWS(exposed_by, D, (D value, Exposure<D> const& by, V radial), exposed_by(by, radial, value))
NUREC_EXPORT(exposed_by_backward, exposed_gradients)

NUREC_EXPORT(between_knots, knots_about)
NUREC_EXPORT(move_pose, moved_pose)
NUREC_EXPORT(correct_row, corrected_row)

NUREC_ROWS(adam_step, AdamValue<D>, (AdamValue<D> const& a, D gradient, D rate, D t, D first, D second, D epsilon),
           adam_step(a, gradient, adam_betas<D>(first, second, epsilon), adam_factors<D>(rate, t, first, second)))
NUREC_ROWS(depth_key, D, (D depth), depth_key(float(depth)))
NUREC_ROWS(short_depth_key, D, (D depth, D bits), short_depth_key(float(depth), int(bits)))
NUREC_ROWS(rounded, D, (D x, D draw), widened(rounded(widened(float(x)), uint32_t(draw))))
NUREC_ROWS(mixed, D, (D x), mixed(uint32_t(x)))
NUREC_ROWS(start_of_draws, D, (D step, D tensor), start_of_draws(uint32_t(step), uint32_t(tensor)))

NUREC_ROWS(philox_round, Array<4>, (Array<4> const& w, D key_0, D key_1),
           numbers_of(philox_round(words_of(w), uint32_t(key_0), uint32_t(key_1))))
NUREC_ROWS(philox, Array<4>, (Array<4> const& w, D key_0, D key_1),
           numbers_of(philox(words_of(w), uint32_t(key_0), uint32_t(key_1))))
NUREC_EXPORT(uniform_of, uniform_by<D>)
NUREC_EXPORT(uniform_of_float, uniform_by<float>)
NUREC_ROWS(normals_of, Vec2<D>, (D far, D around), normals_of<D>(uint32_t(far), uint32_t(around)))
NUREC_EXPORT(drawn, drawn_by<D>)
NUREC_EXPORT(drawn_float, drawn_by<float>)

NUREC_ROWS(split_opacity, D, (D opacity, D copies), split_opacity(opacity, int(copies)))
NUREC_EXPORT(alternating_sum, alternating_sum_of)
NUREC_ROWS(copy_logit, D, (D opacity, D greatest), copy_logit(opacity, greatest != 0))
NUREC_EXPORT(split_logits_alone, split_logits_of<1>)
NUREC_EXPORT(split_logits_of_both, split_logits_of<2>)

NUREC_ROWS(motion_at, V, (Motion<D> const& motion, V p, V v, D fraction), motion.at(p, v, fraction))
NUREC_ROWS(moving_at, V, (Motion<D> const& motion, V p, V v, D fraction), moving(motion, p, v).at(fraction))
NUREC_ROWS(point_at, V, (Motion<D> const& motion, V p, D fraction), motion.of_point(p).at(fraction))
NUREC_ROWS(direction_at, V, (Motion<D> const& motion, V d, D fraction), motion.of_direction(d).at(fraction))
NUREC_EXPORT(distort, distort)
NUREC_EXPORT(undistort, undistort)
NUREC_ROWS(camera_project, Place<D>, (Camera const& camera, V p), camera.project(p))
NUREC_ROWS(camera_fraction, D, (Camera const& camera, Vec2<D> pixel), camera.fraction(pixel.x, pixel.y))
NUREC_ROWS(camera_appear, Place<D>, (Camera const& camera, Motion<D> const& motion, V p, V v),
           camera.appear(motion, p, v))
NUREC_ROWS(lidar_spins, D, (Lidar const& lidar), D(lidar.spins()))
NUREC_ROWS(lidar_fraction, D, (Lidar const& lidar, D azimuth), lidar.fraction(azimuth))
NUREC_ROWS(lidar_lead, D, (Lidar const& lidar, Motion<D> const& motion, V p, V v), lidar.lead(moving(motion, p, v)))
NUREC_EXPORT(lidar_appear, lidar_appear)

NUREC_ROWS(ray_at, Ray<D>, (Trajectory<D> const& path, V direction, D fraction),
           ray_at(path, sensor_at(path, fraction), direction, fraction))

NUREC_EXPORT(sigma_axes, axes_of)
NUREC_ROWS(quick_angle, D, (D y, D x), angle_of(float(y), float(x)))
NUREC_ROWS(unscented_bounds, Bounds<D>, (Seven const& places, D reach), unscented_bounds(places.at, reach))
NUREC_ROWS(any_nearer, D, (Seven const& places, D limit), any_nearer(places.at, limit))
NUREC_ROWS(finite, D, (Bounds<D> const& b), finite(b))
NUREC_ROWS(in_cone, D, (Camera const& camera, V p, D radius), in_cone(camera, p, radius))

NUREC_ROWS(in_lens_cone, D, (LensD const& lens, V p, D radius), in_lens_cone(lens, p, radius))
NUREC_ROWS(lens_exists, D, (LensD const& lens), lens.exists())
NUREC_ROWS(lens_magnified, D, (LensD const& lens, D r), lens.magnified(r))
NUREC_ROWS(lens_place, Vec2<D>, (LensD const& lens, V p), lens.place(p))
NUREC_ROWS(lens_move, Vec2<D>, (LensD const& lens, Vec2<D> q), lens.move(q))
NUREC_ROWS(lens_project, Place<D>, (Camera const& camera, LensD const& lens, V p), lens.project(camera, p))
NUREC_ROWS(lens_appear, Place<D>, (Camera const& camera, LensD const& lens, Motion<D> const& motion, V p, V v),
           lens.appear(camera, motion, p, v))

NUREC_ROWS(lens_slope, Sym2<D>, (Camera const& camera, Vec2<D> at),
           camera.bends() ? camera.stretch(at) : Sym2<D>{1, 0, 1})
NUREC_ROWS(reading, Vec2<D>, (Camera const& camera), camera.reading())
NUREC_ROWS(rate, V, (Motion<D> const& motion, V p, V v, D fraction), moving(motion, p, v).rate(fraction))
NUREC_ROWS(how_it_reads, Reading, (Camera const& camera),
           Reading{D(camera.reads_rows()), D(camera.reads_on()), camera.steps()})
NUREC_ROWS(gaussian_in_sensor_at, GaussianInSensor<D>, (Motion<D> const& motion, V p, V v, Q q, D fraction),
           gaussian_in_sensor_at(motion, moving(motion, p, v), q, fraction))
NUREC_ROWS(project_ellipse, EllipseRow, (GaussianInSensor<D> const& in_sensor, V s, D reach),
           row_of_ellipse(project_ellipse(in_sensor, s, reach)))
NUREC_ROWS(in_pixels, EllipseRow, (Camera const& camera, EllipseRow const& a),
           row_of_ellipse(in_pixels(camera, a.ellipse())))
NUREC_EXPORT(with_rolling_shutter, ellipse_by_rows)
NUREC_ROWS(upright, Outline<D>, (EllipseRow const& a, D margin), upright(a.ellipse(), margin, a.known > 0))
NUREC_ROWS(columns_of_outline, Interval<D>, (Outline<D> const& o, D top, D bottom), columns_within(o, top, bottom))
NUREC_ROWS(columns_of_conic, Interval<D>, (Conic<D> const& q, D top, D bottom, D end),
           columns_within(q, top, bottom, end))

NUREC_EXPORT(over_the_seam, wider)

// Functions that are tested as they are.
// clang-format off
#define NUREC_PLAIN(X) \
    X(stretched) X(cross) X(transposed_times) X(transposed) X(smaller) X(larger) X(quat_conjugate) \
    X(quat_multiply) X(quat_multiply_backward) X(quat_rotate) X(quat_rotate_backward) X(quat_to_matrix) \
    X(quat_to_matrix_backward) X(half_sinc) X(rotvec_to_quat) X(rotvec_to_quat_backward) X(logarithm) \
    X(quat_to_rotvec) X(quat_to_rotvec_backward) X(slerp) X(slerp_backward) X(lerp) X(interpolate_between) \
    X(interpolate_between_backward) X(length_of) X(normalized) X(normalized_backward) X(pose_at) \
    X(pose_at_backward) X(moved_backward) X(scaled_axes) X(covariance) X(covariance_backward) X(make_frame) \
    X(across) X(least_on_line) X(ssim_backward) X(sign_of) X(within) X(sky_backward) X(gain_at) X(sigmoid) \
    X(sigmoid_backward) X(tie_of) X(tie_slope) X(restless) X(turned) X(view_direction) X(view_direction_backward) \
    X(local_view_direction) X(local_view_direction_backward) X(sensor_correction) X(sensor_correction_backward) \
    X(drifted) X(drifted_backward) X(transposed_product) X(in_world) X(in_world_backward) X(pose_vjp) X(on_circle) \
    X(clamp01) X(positive_remainder) X(wrap_angle) X(spherical) X(turn_between) X(elevation_of) X(clamped) \
    X(pixels_a_metre) X(reach_of) X(camera_bounds) X(bending) X(gaussian_in_sensor) X(deviations_away) \
    X(outline_of) X(roots) X(joined) X(farthest) X(least_within) X(inside) X(gap_of) X(moves_past) X(conic_of) \
    X(lidar_bounds) X(lens_bounds) X(lens_depth) X(place_through) X(pixels_a_metre_at)
// clang-format on
NUREC_PLAIN(NUREC_DOUBLE)

// Where the numbers of a view lie in its row.
extern "C" {
std::size_t view_fields_count = sizeof(nurec::VIEW_FIELDS) / sizeof(nurec::RowField);
nurec::RowField const* view_fields() {
    return nurec::VIEW_FIELDS;
}
}
