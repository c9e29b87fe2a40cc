// SPDX-License-Identifier: Apache-2.0
// Every function of kernels/math in double precision, for the tests beside this folder.
#include "../../../kernels/math/activate.cuh"
#include "../../../kernels/math/actors.cuh"
#include "../../../kernels/math/adam.cuh"
#include "../../../kernels/math/bfloat.cuh"
#include "../../../kernels/math/bilateral.cuh"
#include "../../../kernels/math/blend.cuh"
#include "../../../kernels/math/ray_pyramid.cuh"
#include "../../../kernels/math/conic.cuh"
#include "../../../kernels/math/correct.cuh"
#include "../../../kernels/math/covariance.cuh"
#include "../../../kernels/math/depth.cuh"
#include "../../../kernels/math/expose.cuh"
#include "../../../kernels/math/footprint.cuh"
#include "../../../kernels/math/lidar_loss.cuh"
#include "../../../kernels/math/moments.cuh"
#include "../../../kernels/math/outline.cuh"
#include "../../../kernels/math/mcmc_split.cuh"
#include "../../../kernels/math/pose.cuh"
#include "../../../kernels/math/project.cuh"
#include "../../../kernels/math/random.cuh"
#include "../../../kernels/math/rays.cuh"
#include "../../../kernels/math/sh.cuh"
#include "../../../kernels/math/sky.cuh"
#include "../../../kernels/math/ssim.cuh"
#include "../../../kernels/math/view_direction.cuh"
#include "../../../kernels/math/aligned_frame.cuh"
#include "../../../kernels/math/view_row.cuh"
#include "rows.h"

namespace nurec::testing {
namespace {

using D = double;
using V = Vec3<D>;
using Q = Quat<D>;
using M = Mat3<D>;
using F = Frame<D>;
using Camera = CameraModel<D>;
using Lidar = LidarModel<D>;

template <int n>
struct Array {
    D a[n];
};

struct Seven {
    Place<D> at[7];
};

// ---- vec

NUREC_FN V plus(V a, V b) {
    return a + b;
}

NUREC_FN V minus(V a, V b) {
    return a - b;
}

NUREC_FN V times(D s, V a) {
    return s * a;
}

NUREC_FN M matrix_product(M const& a, M const& b) {
    return a * b;
}

NUREC_FN V matrix_times(M const& m, V a) {
    return m * a;
}

NUREC_FN Q quat_plus(Q a, Q b) {
    return a + b;
}

// ---- actors

NUREC_FN D block_of_start(D start, D track, D size) {
    return D(first_block(int64_t(start), int64_t(track), int64_t(size)));
}

NUREC_FN D block_is_not_before(D start, D track, D block, D size) {
    return D(begins_by(int64_t(start), int64_t(track), int64_t(block), int64_t(size)));
}

NUREC_FN D blocks_between(D begin, D end, D size) {
    return D(blocks_with_rows(int64_t(begin), int64_t(end), int64_t(size)));
}

NUREC_FN D block_to_track(Array<4> const& starts, D block, D size) {
    int64_t const rows[] = {int64_t(starts.a[0]), int64_t(starts.a[1]), int64_t(starts.a[2]), int64_t(starts.a[3])};
    return D(track_of_block(rows, 4, int64_t(block), int64_t(size)));
}

struct KeyNumbers {
    D before, after, fraction, rate;
};

NUREC_FN KeyNumbers keys(Array<5> const& times, D begin, D end, D ray_moments_of, D time) {
    Keys const found = keys_around(times.a, int64_t(begin), int64_t(end), int64_t(ray_moments_of), time);
    return {D(found.before), D(found.after), found.fraction, found.rate};
}

NUREC_FN D is_present(D first, D last, D time) {
    return D(present(first, last, time));
}

NUREC_FN MovingPose<D> pose_plus(MovingPose<D> const& a, MovingPose<D> const& b) {
    return a + b;
}

NUREC_FN Moved<D> moved_by_pose(MovingPose<D> const& pose, Vec3<D> mean, Quat<D> quat) {
    return moved(pose, mean, quat);
}

NUREC_FN Moved<D> moved_by_matrices(MovingPose<D> const& pose, Vec3<D> mean, Quat<D> quat) {
    return moved(matrices_of(pose), mean, quat);
}

// ---- gaussian

NUREC_FN GaussianGrad<D> frame_backward(V mean, Q q, V s, V v, F const& d) {
    return make_frame_backward(mean, q, s, v, make_frame(mean, q, s, v), d);
}

template <bool MOVING>
NUREC_FN ResponseGrad<D> response_backward(F const& f, D opacity, Ray<D> const& ray, D d_alpha, D d_t) {
    return respond_backward(f, opacity, respond<MOVING>(f, opacity, ray), d_alpha, d_t);
}

// ---- moments

template <bool DISTANCE>
NUREC_FN RayMoments<D> ray_moments_of(F const& f, D opacity, Ray<D> const& ray, D d_alpha, D d_t) {
    return ray_moments<DISTANCE>(f, opacity, respond<true>(f, opacity, ray), d_alpha, d_t);
}

template <bool MOVING, bool DISTANCE>
NUREC_FN Moments<D> moments_with(Moments<D> sum, RayMoments<D> const& a, V e, D dt) {
    add_moments<MOVING, DISTANCE>(a, e, dt, sum);
    return sum;
}

NUREC_FN GaussianGrad<D> parameters_of(V mean, Q q, V s, V v, Moments<D> const& m) {
    return moments_backward(q, s, make_frame(mean, q, s, v), m);
}

// ---- turned

template <bool MOVING>
NUREC_FN F seen_from(Trajectory<D> const& path, F const& f) {
    return MOVING ? relative_to_sensor(path, f) : f;
}

template <bool MOVING>
NUREC_FN AlignedFrame<D, MOVING> aligned_from(Trajectory<D> const& path, F const& f, D opacity) {
    F const seen = seen_from<MOVING>(path, f);
    return align<MOVING>(alignment_of(seen), seen, opacity);
}

struct Peak {
    D peak, alpha, t;
};

template <bool MOVING>
NUREC_FN Peak response_of(Trajectory<D> const& path, F const& f, D opacity, V d, D dt) {
    AlignedResponse<D> const at = evaluate(aligned_from<MOVING>(path, f, opacity), d, dt);
    return {at.peak, at.alpha, at.t};
}

template <bool MOVING, bool DISTANCE>
NUREC_FN Moments<D> aligned_moments(Trajectory<D> const& path, F const& f, D opacity, V d, D dt, D d_alpha, D d_t) {
    AlignedFrame<D, MOVING> const g = aligned_from<MOVING>(path, f, opacity);
    AlignedResponse<D> const at = evaluate(g, d, dt);
    D const d_peak = at.peak <= D(ALPHA_MAX) ? d_alpha * at.peak : 0;
    Moments<D> sum = {};
    add_moments<MOVING, DISTANCE>(aligned_ray_moments<MOVING, DISTANCE>(at.g, at.e, at.inverse, g.unit, d_peak, d_t),
                                  at.e, dt, sum);
    return unalign(alignment_of(seen_from<MOVING>(path, f)), opacity, sum);
}

template <bool MOVING>
NUREC_FN V nearest_point(Trajectory<D> const& path, F const& f, D opacity, V d, D dt) {
    AlignedFrame<D, MOVING> const g = aligned_from<MOVING>(path, f, opacity);
    V const e = g.M * d;
    return closest_point<MOVING>(drifted(g, dt), e, 1 / dot(e, e));
}

NUREC_FN M turn_around(F const& f) {
    return alignment_of(f).Q;
}

// ---- blend

struct Blended {
    D weight, T, open;
};

NUREC_FN Blended weight_of(D alpha, D t, D T, D open) {
    bool still = open > 0;
    D const weight = blend_weight(alpha, t, T, still);
    return {weight, T, D(still)};
}

struct FormAt {
    D value, sum;
};

NUREC_FN FormAt form_at(V const& p, V const& u, V const& v, D x, D y) {
    Form<D> const form = form_of(p, u, v);
    return {form.at(y) + x * (2 * form.slope(y) + x * form.xx), form.sum()};
}

NUREC_FN V cross_level(D x, D y, V e) {
    return level_cross(Vec2<D>{x, y}, e);
}

NUREC_FN D may_meet(Trajectory<D> const& path, F const& f, D opacity, RayPyramid<D> const& rays,
                    BeamSlab<D> const& slab) {
    GroupTest<D> const group_test = nurec::group_test(aligned_from<true>(path, f, opacity), rays);
    return !(group_test.ahead < 0) && may_hit(group_test, slab);
}

NUREC_FN D may_be_seen(D alpha, D t) {
    return D(reaches(alpha, t));
}

struct BlendGrad {
    D d_alpha, behind;
};

NUREC_FN BlendGrad alpha_gradient(D alpha, D weight, D T_before, D s, D behind) {
    D const d_alpha = blend_backward(alpha, weight, T_before, s, behind);
    return {d_alpha, behind};
}

NUREC_FN D range_residual_of(D t, RangeTarget<D> target) {
    return range_residual(t, target);
}

NUREC_FN D range_residual_slope(D t, RangeTarget<D> target, D d_missed) {
    return range_residual_backward(t, target, d_missed);
}

// ---- sh

template <int S>
NUREC_FN Array<S> basis(V d) {
    Array<S> out;
    sh_basis(d, out.a);
    return out;
}

template <int S>
NUREC_FN V basis_backward(V d, Array<S> const& g) {
    return sh_basis_backward(d, g.a);
}

template <int S>
NUREC_FN V raw_colour(Array<3 * S> const& sh, Array<S> const& b) {
    return sh_sum(sh.a, b.a);
}

template <int S>
NUREC_FN V colour(Array<3 * S> const& sh, V d) {
    return sh_colour<S>(sh.a, d);
}

template <int S>
struct ColourGrad {
    Array<3 * S> sh;
    V d;
};

template <int S>
NUREC_FN ColourGrad<S> colour_backward(Array<3 * S> const& sh, V d, V d_colour) {
    ColourGrad<S> out;
    out.d = sh_colour_backward<S>(sh.a, d, d_colour, out.sh.a);
    return out;
}

NUREC_FN V clamp_backward(V c, V d_colour) {
    return sh_clamp_backward(c, d_colour);
}

template <int S>
NUREC_FN ShRank1Grad<D> colour_outer(Array<3 * S> const& sh, V d, V d_colour) {
    return sh_colour_rank1_backward<S>(sh.a, d, d_colour);
}

// ---- lidar_loss

NUREC_FN D drop_cross_entropy_of(D drop, D returned) {
    return drop_cross_entropy(drop, returned != 0);
}

NUREC_FN D drop_cross_entropy_slope_of(D drop, D returned) {
    return drop_cross_entropy_slope(drop, returned != 0);
}

// ---- ssim

NUREC_FN D window_weight(D k) {
    return ssim_window<D>(int(k));
}

NUREC_FN D ssim_value(SsimMoments<D> const& m) {
    return ssim_of(m).value;
}

NUREC_FN Array<3> ssim_slopes(SsimMoments<D> const& m) {
    Ssim<D> const found = ssim_of(m);
    return {found.mean, found.sum, found.difference};
}

// ---- sky

struct TexelNumbers {
    D texel[4], weight[4];
};

NUREC_FN TexelNumbers texels_about(V d, D height, D width) {
    SkyPlace<D> const at = sky_place(d, int(height), int(width));
    TexelNumbers out;
    for (int corner = 0; corner < 4; ++corner)
        out.texel[corner] = at.texel(corner), out.weight[corner] = at.weight(corner);
    return out;
}

constexpr int SKY_ROWS = 3, SKY_COLUMNS = 5, SKY_TEXELS = SKY_ROWS * SKY_COLUMNS;
using SmallSky = Array<3 * SKY_TEXELS>;

NUREC_FN D logit_of(SmallSky const& sky, V d) {
    return sky_logit(sky.a, sky_place(d, SKY_ROWS, SKY_COLUMNS));
}

NUREC_FN V colour_of_sky(SmallSky const& sky, V d) {
    return sky_colour(sky.a, SKY_TEXELS, sky_place(d, SKY_ROWS, SKY_COLUMNS));
}

// ---- bilateral grids

NUREC_FN GridShape small_grid() {
    return {4, 3, 2};
}

constexpr int GRID_WIDTH = 9, GRID_HEIGHT = 7;  // of the image
using SmallGrid = Array<GRID_NUMBERS * 24>;

NUREC_FN Array<4> step_on_axis(D place, D cells) {
    GridStep<D> const step = grid_step(place, int(cells));
    return {D(step.low), D(step.next), step.share, D(step.inside)};
}

NUREC_FN D place_on_axis(D pixel, D n, D cells) {
    return grid_place<D>(int(pixel), int(n), int(cells));
}

NUREC_FN GridCell<D> cell_at(V c, D column, D row) {
    return grid_cell(small_grid(), int(column), int(row), GRID_WIDTH, GRID_HEIGHT, c);
}

NUREC_FN Array<4> flat_weights(V c, D column, D row) {
    GridCell<D> const at = cell_at(c, column, row);
    return {at.flat(0), at.flat(1), at.flat(2), at.flat(3)};
}

// Rows of the matrix times (c, 1), and their slopes over the layers.
NUREC_FN Array<6> rows_of_grid(SmallGrid const& grid, V c, D column, D row) {
    GridCell<D> const at = cell_at(c, column, row);
    Array<6> out;
    for (int i = 0; i < 3; ++i) {
        out.a[i] = grid_row<D, false>(grid.a, small_grid(), at, i, c);
        out.a[3 + i] = grid_number<D, true>(grid.a, small_grid(), at, 4 * i + 3);
    }
    return out;
}

NUREC_FN V sliced_at(SmallGrid const& grid, V c, D column, D row) {
    return sliced(grid.a, small_grid(), cell_at(c, column, row), c);
}

struct SlicedGrads {
    SmallGrid grid;
    V colour;
};

NUREC_FN SlicedGrads sliced_gradients(SmallGrid const& grid, V c, D column, D row, V d) {
    GridCell<D> const at = cell_at(c, column, row);
    SlicedGrads out = {};
    for (int corner = 0; corner < GRID_CORNERS; ++corner)
        for (int k = 0; k < GRID_NUMBERS; ++k)
            out.grid.a[k * small_grid().cells() + at.cell(corner, small_grid())] +=
                at.weight(corner) * grid_gradient(k, c, d);
    out.colour = sliced_backward(grid.a, small_grid(), at, c, d);
    return out;
}

NUREC_FN D luminance_of(V c) {
    return dot(luminance_weights<D>(), c);
}

// ---- exposure

NUREC_FN V radial_of(D column, D row, D width, D height) {
    return radial_at<D>(int(column), int(row), int(width), int(height));
}

struct ExposedValue {
    D value;
    Exposure<D> by;
};

NUREC_FN D exposed_value(D value, Exposure<D> const& by, V radial) {
    return exposed_by(by, radial, value);
}

NUREC_FN ExposedValue exposed_gradients(D value, Exposure<D> const& by, V radial, D d) {
    ExposedValue out = {};
    out.value = exposed_by_backward(by, radial, value, d, out.by);
    return out;
}

// ---- sensors that are elsewhere

NUREC_FN Vec2<D> knots_about(D first, D spacing, D n, D moment) {
    Between<D> const place = between_knots<D>(first, spacing, int(n), moment);
    return {D(place.k), place.weight};
}

NUREC_FN Array<16> moved_pose(Array<16> const& pose, M const& E, V shift) {
    Array<16> out;
    move_pose(pose.a, E, shift, out.a);
    return out;
}

NUREC_FN ViewRow<D> corrected_row(ViewRow<D> const& row, Correction<D> const& c) {
    ViewRow<D> out = row;
    correct_row(out, c);
    return out;
}

// ---- adam

NUREC_FN AdamValue<D> stepped(AdamValue<D> const& a, D gradient, D rate, D t, D first, D second, D epsilon) {
    return adam_step(a, gradient, adam_betas<D>(first, second, epsilon), adam_factors<D>(rate, t, first, second));
}

// ---- depth

NUREC_FN D depth_key_of(D depth) {
    return depth_key(float(depth));
}

NUREC_FN D short_depth_key_of(D depth, D bits) {
    return short_depth_key(float(depth), int(bits));
}

// ---- bfloat

NUREC_FN D rounded_by(D x, D draw) {
    return widened(rounded(widened(float(x)), uint32_t(draw)));
}

NUREC_FN D mixed_bits(D x) {
    return mixed(uint32_t(x));
}

NUREC_FN D draws_from(D step, D tensor) {
    return start_of_draws(uint32_t(step), uint32_t(tensor));
}

// ---- random

NUREC_FN Words words_of(Array<4> const& w) {
    return {uint32_t(w.a[0]), uint32_t(w.a[1]), uint32_t(w.a[2]), uint32_t(w.a[3])};
}

NUREC_FN Array<4> numbers_of(Words w) {
    return {{D(w.a), D(w.b), D(w.c), D(w.d)}};
}

NUREC_FN Array<4> round_of(Array<4> const& w, D key_0, D key_1) {
    return numbers_of(philox_round(words_of(w), uint32_t(key_0), uint32_t(key_1)));
}

NUREC_FN Array<4> philox_of(Array<4> const& w, D key_0, D key_1) {
    return numbers_of(philox(words_of(w), uint32_t(key_0), uint32_t(key_1)));
}

template <class T>
NUREC_FN D uniform_by(D word) {
    return uniform_of<T>(uint32_t(word));
}

NUREC_FN Vec2<D> normals_by(D far, D around) {
    return normals_of<D>(uint32_t(far), uint32_t(around));
}

template <class T>
NUREC_FN V drawn_by(D row, D step, D seed, D stream) {
    Vec3<T> const found = drawn<T>(uint32_t(row), uint32_t(step), uint32_t(seed), uint32_t(stream));
    return {found.x, found.y, found.z};
}

// ---- copies

template <int S>
NUREC_FN Array<S + 1> split_logits_of(Array<S> const& logits, D copies) {
    SplitLogits<D, S> const found = split_logits(logits.a, int(copies));
    Array<S + 1> out;
    for (int s = 0; s < S; ++s) out.a[s] = found.logits[s];
    out.a[S] = found.factor;
    return out;
}

NUREC_FN D split_opacity_of(D opacity, D copies) {
    return split_opacity(opacity, int(copies));
}

NUREC_FN D alternating_sum_of(D split, D copies) {
    D const x[] = {split};
    D sums[1];
    alternating_sums(int(copies), x, sums);
    return sums[0];
}

NUREC_FN D copy_logit_of(D opacity, D greatest) {
    return copy_logit(opacity, greatest != 0);
}

// ---- sensor

NUREC_FN V motion_at(Motion<D> const& motion, V p, V v, D fraction) {
    return motion.at(p, v, fraction);
}

NUREC_FN V moving_at(Motion<D> const& motion, V p, V v, D fraction) {
    return moving(motion, p, v).at(fraction);
}

NUREC_FN V point_at(Motion<D> const& motion, V p, D fraction) {
    return motion.of_point(p).at(fraction);
}

NUREC_FN V direction_at(Motion<D> const& motion, V d, D fraction) {
    return motion.of_direction(d).at(fraction);
}

NUREC_FN Vec2<D> distort(Camera const& camera, Vec2<D> a) {
    return camera.distort(a);
}

NUREC_FN Vec2<D> undistort(Camera const& camera, Vec2<D> a) {
    return camera.undistort(a);
}

NUREC_FN Place<D> camera_project(Camera const& camera, V p) {
    return camera.project(p);
}

NUREC_FN D camera_fraction(Camera const& camera, Vec2<D> pixel) {
    return camera.fraction(pixel.x, pixel.y);
}

NUREC_FN Place<D> camera_appear(Camera const& camera, Motion<D> const& motion, V p, V v) {
    return camera.appear(motion, p, v);
}

NUREC_FN D lidar_fraction(Lidar const& lidar, D azimuth) {
    return lidar.fraction(azimuth);
}

NUREC_FN D lidar_lead(Lidar const& lidar, Motion<D> const& motion, V p, V v) {
    return lidar.lead(moving(motion, p, v));
}

struct Axes {
    V a[3];
};

NUREC_FN Seven lidar_appear(Lidar const& lidar, Motion<D> const& motion, V mean, Axes const& axes, V v) {
    Seven out;
    lidar.appear(motion, moving(motion, mean, v), axes.a, out.at);
    return out;
}

// ---- rays

NUREC_FN Ray<D> ray_of(Trajectory<D> const& path, V direction, D fraction) {
    return ray_at(path, sensor_at(path, fraction), direction, fraction);
}

// ---- project

NUREC_FN Axes axes_of(Q q, V s) {
    Axes out;
    sigma_axes(q, s, out.a);
    return out;
}

NUREC_FN D quick_angle(D y, D x) {
    return angle_of(float(y), float(x));
}

NUREC_FN Bounds<D> bounds_of(Seven const& places, D reach) {
    return unscented_bounds(places.at, reach);
}

NUREC_FN D is_any_nearer(Seven const& places, D limit) {
    return any_nearer(places.at, limit);
}

NUREC_FN D is_finite(Bounds<D> const& b) {
    return finite(b);
}

NUREC_FN Bounds<D> wider(Lidar const& lidar, Motion<D> const& motion, V mean, V v, Place<D> const& at,
                         Bounds<D> const& b) {
    V const middle = {cos(at.u), sin(at.u), 0};  // its length does not matter
    return over_the_seam(lidar, moving(motion, mean, v), middle, at, b);
}

NUREC_FN D is_in_cone(Camera const& camera, V p, D radius) {
    return in_cone(camera, p, radius);
}

// ---- outlines

NUREC_FN D dot_of_three(V a, V b) {
    return dot(a, b);
}

NUREC_FN D dot_of_two(Vec2<D> a, Vec2<D> b) {
    return dot(a, b);
}

NUREC_FN Vec2<D> symmetric_times(Sym2<D> const& m, Vec2<D> a) {
    return m * a;
}

NUREC_FN Sym2<D> lens_slope(Camera const& camera, Vec2<D> at) {
    return camera.bends() ? camera.stretch(at) : Sym2<D>{1, 0, 1};
}

struct Reading {
    D rows, on, steps;
};

NUREC_FN Reading how_it_reads(Camera const& camera) {
    return {D(camera.reads_rows()), D(camera.reads_on()), camera.steps()};
}

NUREC_FN GaussianInSensor<D> seat_at_fraction(Motion<D> const& motion, V p, V v, Q q, D fraction) {
    return gaussian_in_sensor_at(motion, moving(motion, p, v), q, fraction);
}

NUREC_FN Vec2<D> reading_of(Camera const& camera) {
    return camera.reading();
}

NUREC_FN V rate_of(Motion<D> const& motion, V p, V v, D fraction) {
    return moving(motion, p, v).rate(fraction);
}

struct EllipseRow {
    Vec2<D> at, speed;
    Sym2<D> S;
    D nearest, known;

    NUREC_FN ProjectedEllipse<D> ellipse() const { return {at, speed, S, nearest, known > 0}; }
};

NUREC_FN EllipseRow row_of_ellipse(ProjectedEllipse<D> const& a) {
    return {a.at, a.speed, a.S, a.nearest, D(a.known)};
}

NUREC_FN EllipseRow projected_ellipse(GaussianInSensor<D> const& in_sensor, V s, D reach) {
    return row_of_ellipse(project_ellipse(in_sensor, s, reach));
}

NUREC_FN EllipseRow ellipse_in_pixels(Camera const& camera, EllipseRow const& a) {
    return row_of_ellipse(in_pixels(camera, a.ellipse()));
}

struct RollingShutterRow {
    EllipseRow ellipse;
    D late;
};

NUREC_FN RollingShutterRow ellipse_by_rows(Camera const& camera, D fraction, EllipseRow const& a) {
    RollingShutterEllipse<D> const found = with_rolling_shutter(camera, fraction, a.ellipse());
    return {row_of_ellipse(found.ellipse), found.late};
}

NUREC_FN Outline<D> upright_ellipse(EllipseRow const& a, D margin) {
    return upright(a.ellipse(), margin, a.known > 0);
}

NUREC_FN Interval<D> columns_of_outline(Outline<D> const& o, D top, D bottom) {
    return columns_within(o, top, bottom);
}

NUREC_FN Interval<D> columns_of_conic(Conic<D> const& q, D top, D bottom, D end) {
    return columns_within(q, top, bottom, end);
}

}  // namespace
}  // namespace nurec::testing

using namespace nurec;
using namespace nurec::testing;

NUREC_EXPORT(plus, plus)
NUREC_EXPORT(minus, minus)
NUREC_EXPORT(times, times)
NUREC_EXPORT(dot, dot_of_three)
NUREC_EXPORT(dot_of_two, dot_of_two)
NUREC_EXPORT(symmetric_times, symmetric_times)
NUREC_EXPORT(stretched, stretched<D>)
NUREC_EXPORT(cross, cross<D>)
NUREC_EXPORT(matrix_times, matrix_times)
NUREC_EXPORT(matrix_product, matrix_product)
NUREC_EXPORT(transposed_times, transposed_times<D>)
NUREC_EXPORT(transposed, transposed<D>)
NUREC_EXPORT(smaller, smaller<D>)
NUREC_EXPORT(larger, larger<D>)

NUREC_EXPORT(quat_plus, quat_plus)
NUREC_EXPORT(quat_conjugate, quat_conjugate<D>)
NUREC_EXPORT(quat_multiply, quat_multiply<D>)
NUREC_EXPORT(quat_multiply_backward, quat_multiply_backward<D>)
NUREC_EXPORT(quat_rotate, quat_rotate<D>)
NUREC_EXPORT(quat_rotate_backward, quat_rotate_backward<D>)
NUREC_EXPORT(quat_to_matrix, quat_to_matrix<D>)
NUREC_EXPORT(quat_to_matrix_backward, quat_to_matrix_backward<D>)

NUREC_EXPORT(half_sinc, half_sinc<D>)
NUREC_EXPORT(rotvec_to_quat, rotvec_to_quat<D>)
NUREC_EXPORT(rotvec_to_quat_backward, rotvec_to_quat_backward<D>)
NUREC_EXPORT(logarithm, logarithm<D>)
NUREC_EXPORT(quat_to_rotvec, quat_to_rotvec<D>)
NUREC_EXPORT(quat_to_rotvec_backward, quat_to_rotvec_backward<D>)
NUREC_EXPORT(slerp, slerp<D>)
NUREC_EXPORT(slerp_backward, slerp_backward<D>)
NUREC_EXPORT(lerp, lerp<D>)
NUREC_EXPORT(interpolate_between, interpolate_between<D>)
NUREC_EXPORT(interpolate_between_backward, interpolate_between_backward<D>)

NUREC_EXPORT(first_block, block_of_start)
NUREC_EXPORT(begins_by, block_is_not_before)
NUREC_EXPORT(blocks_with_rows, blocks_between)
NUREC_EXPORT(track_of_block, block_to_track)
NUREC_EXPORT(keys_around, keys)
NUREC_EXPORT(present, is_present)
NUREC_EXPORT(length_of, length_of<D>)
NUREC_EXPORT(normalized, normalized<D>)
NUREC_EXPORT(normalized_backward, normalized_backward<D>)
NUREC_EXPORT(pose_plus, pose_plus)
NUREC_EXPORT(pose_at, pose_at<D>)
NUREC_EXPORT(pose_at_backward, pose_at_backward<D>)
NUREC_EXPORT(moved, moved_by_pose)
NUREC_EXPORT(moved_by_matrices, moved_by_matrices)
NUREC_EXPORT(moved_backward, moved_backward<D>)

NUREC_EXPORT(scaled_axes, scaled_axes<D>)
NUREC_EXPORT(covariance, covariance<D>)
NUREC_EXPORT(covariance_backward, covariance_backward<D>)

NUREC_EXPORT(make_frame, make_frame<D>)
NUREC_EXPORT(make_frame_backward, frame_backward)
NUREC_EXPORT(approach, approach<true, D>)
NUREC_EXPORT(respond_still, respond<false, D>)
NUREC_EXPORT(respond_moving, respond<true, D>)
NUREC_EXPORT(respond_backward, response_backward<true>)

NUREC_EXPORT(alignment_of, turn_around)
NUREC_EXPORT(across, across<D>)
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
NUREC_EXPORT(moments_backward, parameters_of)

NUREC_EXPORT(form_at, form_at)
NUREC_EXPORT(level_cross, cross_level)
NUREC_EXPORT(may_hit, may_meet)
NUREC_EXPORT(least_on_line, least_on_line<D>)

NUREC_EXPORT(reaches, may_be_seen)
NUREC_EXPORT(blend_weight, weight_of)
NUREC_EXPORT(blend_backward, alpha_gradient)
NUREC_EXPORT(range_residual, range_residual_of)
NUREC_EXPORT(range_residual_backward, range_residual_slope)

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
NUREC_EXPORT(sh_clamp_backward, clamp_backward)

NUREC_EXPORT(ssim_window, window_weight)
NUREC_EXPORT(ssim_of, ssim_value)
NUREC_EXPORT(ssim_of_backward, ssim_slopes)
NUREC_EXPORT(ssim_backward, ssim_backward<D>)
NUREC_EXPORT(sign_of, sign_of<D>)

NUREC_EXPORT(drop_cross_entropy, drop_cross_entropy_of)
NUREC_EXPORT(drop_cross_entropy_slope, drop_cross_entropy_slope_of)

NUREC_EXPORT(within, within<D>)
NUREC_EXPORT(sky_place, texels_about)
NUREC_EXPORT(sky_logit, logit_of)
NUREC_EXPORT(sky_colour, colour_of_sky)
NUREC_EXPORT(sky_backward, sky_backward<D>)

NUREC_EXPORT(grid_step, step_on_axis)
NUREC_EXPORT(grid_place, place_on_axis)
NUREC_EXPORT(grid_cell, flat_weights)
NUREC_EXPORT(grid_row, rows_of_grid)
NUREC_EXPORT(sliced, sliced_at)
NUREC_EXPORT(sliced_backward, sliced_gradients)
NUREC_EXPORT(luminance_weights, luminance_of)

NUREC_EXPORT(radial_at, radial_of)
NUREC_EXPORT(gain_at, gain_at<D>)
NUREC_EXPORT(exposed_by, exposed_value)
NUREC_EXPORT(exposed_by_backward, exposed_gradients)

NUREC_EXPORT(sigmoid, sigmoid<D>)
NUREC_EXPORT(sigmoid_backward, sigmoid_backward<D>)
NUREC_EXPORT(tie_of, tie_of<D>)
NUREC_EXPORT(tie_slope, tie_slope<D>)
NUREC_EXPORT(restless, restless<D>)
NUREC_EXPORT(turned, turned<D>)

NUREC_EXPORT(view_direction, view_direction<D>)
NUREC_EXPORT(view_direction_backward, view_direction_backward<D>)
NUREC_EXPORT(local_view_direction, local_view_direction<D>)
NUREC_EXPORT(local_view_direction_backward, local_view_direction_backward<D>)

NUREC_EXPORT(between_knots, knots_about)
NUREC_EXPORT(sensor_correction, sensor_correction<D>)
NUREC_EXPORT(sensor_correction_backward, sensor_correction_backward<D>)
NUREC_EXPORT(drifted, drifted<D>)
NUREC_EXPORT(drifted_backward, drifted_backward<D>)
NUREC_EXPORT(transposed_product, transposed_product<D>)
NUREC_EXPORT(in_world, in_world<D>)
NUREC_EXPORT(in_world_backward, in_world_backward<D>)
NUREC_EXPORT(move_pose, moved_pose)
NUREC_EXPORT(correct_row, corrected_row)
NUREC_EXPORT(pose_vjp, pose_vjp<D>)

NUREC_EXPORT(adam_step, stepped)
NUREC_EXPORT(depth_key, depth_key_of)
NUREC_EXPORT(short_depth_key, short_depth_key_of)
NUREC_EXPORT(rounded, rounded_by)
NUREC_EXPORT(mixed, mixed_bits)
NUREC_EXPORT(start_of_draws, draws_from)

NUREC_EXPORT(philox_round, round_of)
NUREC_EXPORT(philox, philox_of)
NUREC_EXPORT(uniform_of, uniform_by<D>)
NUREC_EXPORT(uniform_of_float, uniform_by<float>)
NUREC_EXPORT(on_circle, on_circle<D>)
NUREC_EXPORT(normals_of, normals_by)
NUREC_EXPORT(drawn, drawn_by<D>)
NUREC_EXPORT(drawn_float, drawn_by<float>)

NUREC_EXPORT(clamp01, clamp01<D>)
NUREC_EXPORT(positive_remainder, positive_remainder<D>)
NUREC_EXPORT(wrap_angle, wrap_angle<D>)
NUREC_EXPORT(spherical, spherical<D>)
NUREC_EXPORT(turn_between, turn_between<D>)
NUREC_EXPORT(elevation_of, elevation_of<D>)
NUREC_EXPORT(split_opacity, split_opacity_of)
NUREC_EXPORT(alternating_sum, alternating_sum_of)
NUREC_EXPORT(clamped, clamped<D>)
NUREC_EXPORT(copy_logit, copy_logit_of)
NUREC_EXPORT(split_logits_alone, split_logits_of<1>)
NUREC_EXPORT(split_logits_of_both, split_logits_of<2>)

NUREC_EXPORT(motion_at, motion_at)
NUREC_EXPORT(moving_at, moving_at)
NUREC_EXPORT(point_at, point_at)
NUREC_EXPORT(direction_at, direction_at)
NUREC_EXPORT(distort, distort)
NUREC_EXPORT(undistort, undistort)
NUREC_EXPORT(camera_project, camera_project)
NUREC_EXPORT(pixels_a_metre, pixels_a_metre<D>)
NUREC_EXPORT(camera_fraction, camera_fraction)
NUREC_EXPORT(camera_appear, camera_appear)
NUREC_EXPORT(lidar_fraction, lidar_fraction)
NUREC_EXPORT(lidar_lead, lidar_lead)
NUREC_EXPORT(lidar_appear, lidar_appear)

NUREC_EXPORT(ray_at, ray_of)

NUREC_EXPORT(reach_of, reach_of<D>)
NUREC_EXPORT(sigma_axes, axes_of)
NUREC_EXPORT(quick_angle, quick_angle)
NUREC_EXPORT(unscented_bounds, bounds_of)
NUREC_EXPORT(any_nearer, is_any_nearer)
NUREC_EXPORT(finite, is_finite)
NUREC_EXPORT(in_cone, is_in_cone)
NUREC_EXPORT(camera_bounds, camera_bounds<D>)

NUREC_EXPORT(lens_slope, lens_slope)
NUREC_EXPORT(bending, bending<D>)
NUREC_EXPORT(reading, reading_of)
NUREC_EXPORT(rate, rate_of)
NUREC_EXPORT(how_it_reads, how_it_reads)
NUREC_EXPORT(gaussian_in_sensor_at, seat_at_fraction)
NUREC_EXPORT(gaussian_in_sensor, gaussian_in_sensor<D>)
NUREC_EXPORT(deviations_away, deviations_away<D>)
NUREC_EXPORT(project_ellipse, projected_ellipse)
NUREC_EXPORT(in_pixels, ellipse_in_pixels)
NUREC_EXPORT(with_rolling_shutter, ellipse_by_rows)
NUREC_EXPORT(upright, upright_ellipse)
NUREC_EXPORT(outline_of, outline_of<D>)
NUREC_EXPORT(columns_of_outline, columns_of_outline)
NUREC_EXPORT(roots, roots<D>)
NUREC_EXPORT(joined, joined<D>)
NUREC_EXPORT(farthest, farthest<D>)
NUREC_EXPORT(least_within, least_within<D>)
NUREC_EXPORT(inside, inside<D>)
NUREC_EXPORT(gap_of, gap_of<D>)
NUREC_EXPORT(moves_past, moves_past<D>)
NUREC_EXPORT(conic_of, conic_of<D>)
NUREC_EXPORT(columns_of_conic, columns_of_conic)

NUREC_EXPORT(over_the_seam, wider)
NUREC_EXPORT(lidar_bounds, lidar_bounds<D>)

// Where the numbers of a view lie in its row.
extern "C" {
std::size_t view_fields_count = sizeof(nurec::VIEW_FIELDS) / sizeof(nurec::RowField);
nurec::RowField const* view_fields() {
    return nurec::VIEW_FIELDS;
}
}
